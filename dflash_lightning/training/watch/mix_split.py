"""How much of the loss curve's movement is the mix of buckets, and how much is noise within them.

in    Sums by bucket of each optimizer step
out   a share of variance, for the curve of steps (MixSplit) and for the raw curve of micro-batches (RawSplit)
law   the learning trend counts in neither: only neighbouring steps and short stretches are compared
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dflash_lightning.training.window_sums import Sums

FEWEST_WITHIN = 12
"""Degrees of freedom within the buckets from which a share means something."""


@dataclass(kw_only=True)
class MixSplit:
    """Splits the change of the loss from step to step.

    With w_tb the share of bucket b in the loss weight of step t, l_tb its mean loss there, L_t = sum_b w_tb
    l_tb, and m_b the bucket's running mean (half-life `half_life` of its steps) before step t:

        change    L_t - L_(t-1)
        mix       sum_b (w_tb - w_(t-1)b) m_b        what the change would be if no bucket's loss had moved
        rest      change - mix                       what the buckets' own losses did
        share     sum mix^2 / (sum mix^2 + sum rest^2), over the pairs of steps since the last `take`

    A slow trend is in neither: it cancels between neighbouring steps. A pair with a bucket never seen before
    is left out: it has no m_b yet.
    """

    num_buckets: int
    half_life: float = 16.0
    means: list[float] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    last_shares: list[float] = field(default_factory=list)
    last_loss: float = 0.0
    mix: float = 0.0
    rest: float = 0.0

    def __post_init__(self) -> None:
        self.means = self.means or [0.0] * self.num_buckets
        self.seen = self.seen or [0] * self.num_buckets

    def add(self, buckets: Sequence[Sums]) -> None:
        """Count one optimizer step that has some weight."""
        weight = sum(bucket.weight for bucket in buckets)
        shares = [bucket.weight / weight for bucket in buckets]
        loss = sum(bucket.loss for bucket in buckets) / weight
        if self.last_shares and all(
            seen or share == last == 0
            for seen, share, last in zip(self.seen, shares, self.last_shares, strict=True)
        ):
            moved = zip(shares, self.last_shares, self.means, strict=True)
            mix = sum((share - last) * mean for share, last, mean in moved)
            self.mix += mix**2
            self.rest += (loss - self.last_loss - mix) ** 2
        self._follow(buckets)
        self.last_shares, self.last_loss = shares, loss

    def _follow(self, buckets: Sequence[Sums]) -> None:
        for i, bucket in enumerate(buckets):
            if bucket.weight:
                pace = max(1.0 - 2.0 ** (-1.0 / self.half_life), 1.0 / (self.seen[i] + 1))
                self.means[i] += pace * (bucket.mean_loss - self.means[i])
                self.seen[i] += 1

    def take(self) -> float | None:
        """The share since the last call, 0 to 1; None where nothing moved or there was no pair."""
        mix, whole = self.mix, self.mix + self.rest
        self.mix = self.rest = 0.0
        return mix / whole if whole else None

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RawMovement:
    """What moves the curve of single micro-batches."""

    share: float
    """Share of the variance that the bucket explains, 0 to 1, corrected for chance."""
    deviation: float
    """Standard deviation between micro-batches of one stretch (nats)."""


@dataclass(kw_only=True)
class RawSplit:
    """Analysis of variance of micro-batch mean losses, by bucket, within short stretches of the run.

    A stretch is as many steps as give `per_bucket` micro-batches for each bucket on average, too short for
    the trend to matter. In each, with n_b micro-batches of bucket b, their mean m_b and the mean m of all:

        between = sum_b n_b (m_b - m)^2             on K - 1 degrees of freedom, K buckets present
        within  = sum of squares - sum_b n_b m_b^2  on n - K

    Both are summed over the stretches. share = (between - dof_between x within / dof_within) / (between +
    within): epsilon squared, which is 0 on average where buckets do not matter.
    """

    num_buckets: int
    per_bucket: int = 8
    stretch: list[list[float]] = field(default_factory=list)
    """[K][3]: number, sum and sum of squares of the micro-batches' mean losses in the present stretch."""
    between: float = 0.0
    within: float = 0.0
    between_dof: float = 0.0
    within_dof: float = 0.0

    def __post_init__(self) -> None:
        self.stretch = self.stretch or self._nothing()

    def _nothing(self) -> list[list[float]]:
        return [[0.0, 0.0, 0.0] for _ in range(self.num_buckets)]

    def add(self, buckets: Sequence[Sums]) -> None:
        for row, bucket in zip(self.stretch, buckets, strict=True):
            row[0] += bucket.micro_batches
            row[1] += bucket.micro_loss
            row[2] += bucket.micro_square
        if sum(row[0] for row in self.stretch) >= self.per_bucket * self.num_buckets:
            self._close()

    def _close(self) -> None:
        present = [row for row in self.stretch if row[0]]
        self.stretch = self._nothing()
        if not present:
            return
        number = sum(row[0] for row in present)
        mean = sum(row[1] for row in present) / number
        self.between += sum(row[0] * (row[1] / row[0] - mean) ** 2 for row in present)
        self.within += sum(max(0.0, row[2] - row[1] ** 2 / row[0]) for row in present)
        self.between_dof += len(present) - 1
        self.within_dof += number - len(present)

    def take(self) -> RawMovement | None:
        """Everything since the last call; None where there were too few micro-batches to compare."""
        self._close()
        between, within, dof = self.between, self.within, (self.between_dof, self.within_dof)
        self.between = self.within = self.between_dof = self.within_dof = 0.0
        if dof[1] < FEWEST_WITHIN or not between + within:
            return None
        by_chance = dof[0] * within / dof[1]
        share = max(0.0, between - by_chance) / (between + within)
        return RawMovement(share=share, deviation=((between + within) / sum(dof)) ** 0.5)

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)
