"""Everything the user decides about the plan, refused at once where it makes no sense.

in    the `data.plan` section of a YAML file, or keywords
out   PlanConfig; config_facts: the same as plain values, for checkpoints
"""

from bisect import bisect_right
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from dflash_lightning.plan.batches import PoolSorted
from dflash_lightning.plan.buckets import round_up
from dflash_lightning.plan.cut import Limits
from dflash_lightning.plan.order import Credit, Order
from dflash_lightning.plan.packing import BucketPacking, Packing

EdgeRule = Literal["quantile", "optimal"]


@dataclass(frozen=True, kw_only=True)
class PlanConfig:
    """How samples become batches, in which order they come and how they are dealt to ranks."""

    edges: tuple[int, ...] | EdgeRule = "quantile"
    """Inclusive upper bound of each bucket in tokens, or the rule that finds them: `quantile` puts equally
    many samples in each, `optimal` minimises the tokens if every sample were padded to its bucket's edge."""
    num_buckets: int = 6
    """Buckets that a rule makes, at most; given edges say it themselves."""
    super_buckets: int | None = None
    """Merge neighbouring buckets until so many are left: six become three in pairs. null: none."""
    min_length: int = 0
    """Shorter samples are left out, and listed in the plan."""
    max_tokens: int = 49_152
    """Rows times padded length of a batch, at most: memory and time of the target."""
    quadratic_budget: float | None = None
    """Padded length q at which a token counts twice against max_tokens, which then bounds rows * (L + L * L /
    q) of a batch padded to L: fewer rows in long batches. null: tokens count once. It changes what a batch
    may hold; `quadratic_length` only changes which rank gets it."""
    max_rows: int = 64
    """Samples in a batch, at most."""
    max_block_tokens: int = 65_536
    """Anchors times block size, summed over a batch's rows, at most: load of the drafter. 0: off."""
    pad_multiple: int = 1
    """Lengths and edges are rounded up to a multiple of this; 128 suits compiled attention kernels."""
    packing: Packing = PoolSorted()
    """How samples become batches: PoolSorted or RandomOrder inside each bucket, MixedBuckets across them,
    WindowFirst one optimizer window after the other."""
    static_shapes: bool = False
    """Pad every row to its bucket's edge and give all batches of a bucket equally many rows, as if every row
    held all anchors: one shape a bucket, one more for its last batch, and those of the epoch's tail. For
    compiled kernels; costs padding."""
    order: Order = Credit()
    """How batches of different buckets follow each other: Credit, Shuffle or DiversityFirst. WindowFirst
    decides it itself."""
    oversize: Literal["error", "drop", "truncate"] = "error"
    """What becomes of a sample longer than the last edge, or than a batch can hold where a rule finds the
    edges."""
    tail: Literal["split", "drop"] = "split"
    """The last, short window: split its largest batches so that it becomes a full one, or drop fewer than
    world_size batches."""
    quadratic_length: float | None = 8192.0
    """Padded length at which attention costs as much as all the rest, for dealing batches to ranks; null:
    never. It moves no sample to another batch: that is `quadratic_budget`."""
    block_cost: float = 1.0
    """Cost of one block position, in padded tokens, for dealing batches to ranks."""

    def __post_init__(self) -> None:
        for name in ("num_buckets", "max_tokens", "max_rows", "pad_multiple"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        for name, least, rule in (
            ("max_block_tokens", 0, "must be 0 (off) or more"),
            ("block_cost", 0, "must be 0 or more"),
            ("min_length", 0, "must be 0 (none left out) or more"),
        ):
            _require(getattr(self, name) >= least, name, getattr(self, name), rule)
        for name, rule in (
            ("quadratic_length", "must be a positive length, or null for linear cost"),
            ("quadratic_budget", "must be a positive length, or null for a linear budget"),
            ("super_buckets", "must be at least 1, or null to merge none"),
        ):
            value = getattr(self, name)
            _require(value is None or value > 0, name, value, rule)
        self._check_lengths()
        self._check_strategies()

    def _check_lengths(self) -> None:
        if not isinstance(self.edges, str):
            self._check_edges(self.edges)
        elif self._cost(self.pad_multiple) > self.max_tokens:
            raise ValueError(
                f"plan.max_tokens {self.max_tokens} cannot hold one sample padded to plan.pad_multiple "
                f"{self.pad_multiple}{self._as_charged(self.pad_multiple)}; raise max_tokens or lower "
                "pad_multiple"
            )
        _require(
            self.min_length <= self.longest,
            "min_length",
            self.min_length,
            f"must be at most {self.longest}, the longest sample that a batch can hold",
        )

    def _check_edges(self, edges: tuple[int, ...]) -> None:
        if edges and edges[0] == 0:
            raise ValueError(
                f"plan.edges are upper bounds, so the first bucket begins at 1 token without a 0: "
                f"got {edges}; leave the 0 out, and set plan.min_length to leave out short samples"
            )
        rising = all(low < high for low, high in zip(edges, edges[1:], strict=False))
        _require(
            bool(edges) and edges[0] >= 1 and rising,
            "edges",
            edges,
            "must be positive and strictly increasing",
        )
        longest = round_up(edges[-1], self.pad_multiple)
        if self._cost(longest) > self.max_tokens:
            raise ValueError(
                f"plan.max_tokens {self.max_tokens} cannot hold one sample of the last edge {edges[-1]} "
                f"(padded to {longest}{self._as_charged(longest)}); raise plan.max_tokens or lower plan.edges"
            )

    def _check_strategies(self) -> None:
        packing, order = type(self.packing).__name__, type(self.order).__name__
        if self.packing.decides_order and self.order != Credit():
            raise ValueError(
                f"plan.packing {packing} decides the order of the batches, so plan.order {order} would not "
                "apply; leave plan.order out, or choose another packing"
            )
        if self.static_shapes and not isinstance(self.packing, BucketPacking):
            raise ValueError(
                f"plan.static_shapes pads to the edges of buckets, which plan.packing {packing} mixes; "
                "set plan.packing to PoolSorted or RandomOrder, or static_shapes to false"
            )

    def _cost(self, padded: int) -> float:
        """Tokens of the budget that one row padded to this length takes."""
        return float(self.batch_limits.row_cost(np.array([padded]))[0])

    def _as_charged(self, padded: int) -> str:
        if self.quadratic_budget is None:
            return ""
        return f", {self._cost(padded):.0f} as plan.quadratic_budget {self.quadratic_budget:g} charges it"

    @property
    def longest(self) -> int:
        """Longest sample that a batch can hold, in padded tokens."""
        if isinstance(self.edges, str):
            lengths = range(0, self.max_tokens + 1, self.pad_multiple)
            return lengths[bisect_right(lengths, float(self.max_tokens), key=self._cost) - 1]
        return round_up(self.edges[-1], self.pad_multiple)

    @property
    def batch_limits(self) -> Limits:
        """The three limits of a batch. A switched-off one becomes a number that no batch reaches."""
        return Limits(
            rows=self.max_rows,
            tokens=self.max_tokens,
            block_tokens=self.max_block_tokens or 1 << 62,
            quadratic=self.quadratic_budget,
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
    for name in ("quadratic_length", "quadratic_budget", "block_cost"):
        if facts[name] is not None:
            facts[name] = float(facts[name])  # 8192 and 8192.0 are the same setting
    for name in ("packing", "order"):
        facts[name] = {"class": type(getattr(config, name)).__name__, **facts[name]}
    return facts
