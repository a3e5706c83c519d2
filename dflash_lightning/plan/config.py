"""Everything the user decides about the plan, refused at once where it makes no sense.

in    the `data.plan` section of a YAML file, or keywords
out   PlanConfig; config_facts: the same as plain values, for checkpoints
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from dflash_lightning.plan.batches import Limits, Packing, PoolSorted
from dflash_lightning.plan.buckets import round_up
from dflash_lightning.plan.order import Credit, Order

EdgeRule = Literal["quantile", "optimal"]


@dataclass(frozen=True, kw_only=True)
class PlanConfig:
    """How samples become batches, in which order they come and how they are dealt to ranks."""

    edges: tuple[int, ...] | EdgeRule = "quantile"
    """Inclusive upper bound of each bucket in tokens, or the rule that finds them: `quantile` puts equally
    many samples in each, `optimal` minimises the tokens if every sample were padded to its bucket's edge."""
    num_buckets: int = 6
    """Buckets that a rule makes, at most; given edges say it themselves."""
    max_tokens: int = 49_152
    """Rows times padded length of a batch, at most: memory and time of the target."""
    max_rows: int = 64
    """Samples in a batch, at most."""
    max_block_tokens: int = 65_536
    """Anchors times block size, summed over a batch's rows, at most: load of the drafter. 0: off."""
    pad_multiple: int = 1
    """Lengths and edges are rounded up to a multiple of this; 128 suits compiled attention kernels."""
    packing: Packing = PoolSorted()
    """How the samples of a bucket become batches: PoolSorted, or RandomOrder."""
    order: Order = Credit()
    """How batches of different buckets follow each other: Credit, Shuffle or DiversityFirst."""
    oversize: Literal["error", "drop", "truncate"] = "error"
    """What becomes of a sample longer than the last edge, or than max_tokens where a rule finds the edges."""
    tail: Literal["split", "drop"] = "split"
    """The last, short window: split its largest batches so that it becomes a full one, or drop fewer than
    world_size batches."""
    quadratic_length: float | None = None
    """Padded length at which attention costs as much as all the rest, for dealing batches to ranks; null:
    never."""
    block_cost: float = 1.0
    """Cost of one block position, in padded tokens, for dealing batches to ranks."""

    def __post_init__(self) -> None:
        for name in ("num_buckets", "max_tokens", "max_rows", "pad_multiple"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        _require(
            self.max_block_tokens >= 0, "max_block_tokens", self.max_block_tokens, "must be 0 (off) or more"
        )
        _require(self.block_cost >= 0, "block_cost", self.block_cost, "must be 0 or more")
        if self.quadratic_length is not None:
            rule = "must be a positive length, or null for linear cost"
            _require(self.quadratic_length > 0, "quadratic_length", self.quadratic_length, rule)
        if not isinstance(self.edges, str):
            self._check_edges(self.edges)
        elif self.max_tokens < self.pad_multiple:
            raise ValueError(
                f"plan.max_tokens {self.max_tokens} cannot hold one sample padded to plan.pad_multiple "
                f"{self.pad_multiple}; raise max_tokens or lower pad_multiple"
            )

    def _check_edges(self, edges: tuple[int, ...]) -> None:
        rising = all(low < high for low, high in zip(edges, edges[1:], strict=False))
        _require(
            bool(edges) and edges[0] >= 1 and rising,
            "edges",
            edges,
            "must be positive and strictly increasing",
        )
        longest = round_up(edges[-1], self.pad_multiple)
        if longest > self.max_tokens:
            raise ValueError(
                f"plan.max_tokens {self.max_tokens} cannot hold one sample of the last edge {edges[-1]} "
                f"(padded to {longest}); raise plan.max_tokens or lower plan.edges"
            )

    @property
    def longest(self) -> int:
        """Longest sample that a batch can hold, in padded tokens."""
        if isinstance(self.edges, str):
            return self.max_tokens // self.pad_multiple * self.pad_multiple
        return round_up(self.edges[-1], self.pad_multiple)

    @property
    def batch_limits(self) -> Limits:
        """The three limits of a batch. A switched-off one becomes a number that no batch reaches."""
        return Limits(
            rows=self.max_rows, tokens=self.max_tokens, block_tokens=self.max_block_tokens or 1 << 62
        )


def _require(holds: bool, name: str, value: object, rule: str) -> None:
    if not holds:
        raise ValueError(f"plan.{name} {rule}, got {value}")


def config_facts(config: PlanConfig) -> dict[str, Any]:
    """Everything in the config that decides a plan, as strings, numbers, lists and dicts.

    Checkpoints keep it, so that a refused resume can say which settings differ.
    """
    facts = asdict(config)
    if not isinstance(config.edges, str):
        facts["edges"] = list(config.edges)
        del facts["num_buckets"]  # says nothing once edges are given
    for name in ("packing", "order"):
        facts[name] = {"class": type(getattr(config, name)).__name__, **facts[name]}
    return facts
