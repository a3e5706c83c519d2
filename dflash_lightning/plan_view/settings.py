"""What to plan, and for which run: from YAML, from flags, or from both.

in    PlanSettings as the YAML says (or the defaults), the flags that were given
out   PlanSettings, refused where no run can be like that
law   a flag that was not given changes nothing; one that was given wins over the YAML
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan.samples import Samples
from dflash_lightning.plan.strategies import named_order
from dflash_lightning.plan_view.lengths import DEFAULT_SHARE, read_samples, with_supervised
from dflash_lightning.plan_view.model_settings import ModelSettings
from dflash_lightning.plan_view.names import packing_of, with_changes

PLAIN_FLAGS = (
    "num_buckets",
    "max_tokens",
    "max_rows",
    "max_block_tokens",
    "pad_multiple",
    "super_buckets",
    "quadratic_budget",
    "quadratic_length",
    "block_cost",
    "min_length",
    "oversize",
    "tail",
)
"""Flags that are fields of PlanConfig as they stand."""
RUN_FLAGS = ("num_anchors", "block_size", "seed", "epoch", "accumulate", "max_epochs", "max_steps")


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """Everything that decides a plan besides the lengths, and the run that it is planned for."""

    plan: PlanConfig = PlanConfig()
    store: str | None = None
    """Folder of the token store that the YAML names."""
    num_anchors: int = 512
    block_size: int = 16
    seed: int = 0
    epoch: int = 0
    world: int = 1
    """Ranks."""
    accumulate: int = 1
    """Batches of each rank behind one optimizer step."""
    max_epochs: int | None = None
    """Epochs of the run; None where nobody said."""
    max_steps: int = -1
    """Optimizer steps that end the run earlier; -1: none."""
    rate: Callable[[float], float] | None = None
    """Share of the run that is done -> learning rate."""
    model: ModelSettings | None = None
    notes: tuple[str, ...] = ()
    """What had to be assumed."""

    def __post_init__(self) -> None:
        for name, flag, least in (
            ("world", "--world-size", 1),
            ("accumulate", "--accumulate", 1),
            ("num_anchors", "--num-anchors", 1),
            ("block_size", "--block-size", 2),
            ("epoch", "--epoch", 0),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{flag} must be at least {least}, got {getattr(self, name)}")
        for flag, value in (("--max-epochs", self.max_epochs), ("--max-steps", self.max_steps)):
            if value is not None and value < -1:
                raise ValueError(f"{flag} must be at least 0, or -1 for no limit, got {value}")

    @property
    def window_batches(self) -> int:
        """Batches behind one optimizer step, of all ranks."""
        return self.world * self.accumulate


def with_flags(settings: PlanSettings, flags: Mapping[str, Any]) -> PlanSettings:
    """`flags`: option names with underscores, None where not given. Raises ValueError as PlanConfig does."""
    run = {name: flags[name] for name in RUN_FLAGS if flags.get(name) is not None}
    if run.get("max_epochs") == -1:  # as the YAML says it: without end
        run["max_epochs"] = None
    if flags.get("world_size") is not None:  # then nothing about devices was assumed
        run |= {"world": flags["world_size"], "notes": ()}
    if flags.get("target") is not None:
        model = settings.model or ModelSettings(target=flags["target"])
        run["model"] = replace(model, target=flags["target"])
    settings = replace(settings, **run)
    changes = {name: flags[name] for name in PLAIN_FLAGS if flags.get(name) is not None}
    if flags.get("edges") is not None:
        changes["edges"] = parse_edges(flags["edges"])
    if flags.get("static_shapes"):
        changes["static_shapes"] = True
    if flags.get("order") is not None:
        changes["order"] = named_order(flags["order"])
    if flags.get("packing") is not None:
        changes["packing"] = packing_of(flags["packing"], window_batches=settings.window_batches)
    return replace(settings, plan=with_changes(settings.plan, changes))


def parse_edges(text: str) -> tuple[int, ...] | str:
    """ "1216,1728,8192" or a rule's name. Raises ValueError."""
    if text in ("quantile", "optimal"):
        return text
    try:
        return tuple(int(edge) for edge in text.strip("[]()").split(","))
    except ValueError:
        raise ValueError(
            f"--edges is a list of tokens like 1024,2048,8192, or quantile, or optimal; got {text!r}"
        ) from None


def load_samples(
    settings: PlanSettings, *, lengths: str | None, supervised: str | None
) -> tuple[Samples, str]:
    """The lengths to plan, and where they come from. Raises ValueError, FileNotFoundError."""
    share = _share_or_path(supervised)
    if lengths is not None:
        return read_samples(lengths, share), f"{lengths}, {_describe(share)}"
    if settings.store is None:
        raise ValueError("nothing to plan: give --lengths file.npy, or --config with a token store")
    from dflash_lightning.data.store import TokenStore  # imports datasets, which takes a second

    samples = TokenStore.open(settings.store).samples("train")
    if supervised is not None:
        return with_supervised(samples.lengths, share), f"token store {settings.store}, {_describe(share)}"
    return samples, f"token store {settings.store}"


def _share_or_path(supervised: str | None) -> str | float:
    if supervised is None:
        return DEFAULT_SHARE
    try:
        return float(supervised)
    except ValueError:
        return supervised


def _describe(share: str | float) -> str:
    return (
        f"supervised counts from {share}" if isinstance(share, str) else f"{share:.0%} of tokens supervised"
    )
