"""The band in which the loss of one bucket usually lies, and when it leaves it.

in    per optimizer step: the bucket's mean loss, and its weight (how much supervision stands behind the mean)
out   an excursion when the loss has left the band for `patience` of the bucket's steps in a row
law   pure, a few numbers of memory a bucket; one excursion moves the band by little, a lasting level is
      learnt, so that no alarm stays for ever
"""

import math
import statistics
from dataclasses import asdict, dataclass
from typing import Any

MAD_TO_DEVIATION = 1.4826
"""Median of |x| -> standard deviation, for normal x."""


@dataclass(frozen=True, kw_only=True)
class BandRule:
    """How wide a band is, and how long the loss has to be above it."""

    width: float = 5.0
    """Half the band, in standard deviations of the bucket's own steps around its slowly moving mean."""
    half_life: float = 16.0
    """Steps of the bucket after which the mean has moved half the way to a new level."""
    memory: int = 64
    """Steps of the bucket from which the deviation is taken, as a median: outliers do not widen the band."""
    warm_up: int = 16
    """Steps of the bucket before its band is trusted; at least 2."""
    patience: int = 2
    """Steps of the bucket in a row above the band that make an excursion: one alone is an odd batch."""
    least: float = 0.01
    """Smallest deviation believed, as a share of the mean; else a bucket of equal samples alarms at once."""

    def __post_init__(self) -> None:
        for name in ("width", "half_life", "patience"):
            if not getattr(self, name) > 0:
                raise ValueError(f"LossBands band.{name} must be positive, got {getattr(self, name)}")
        if not 2 <= self.warm_up <= self.memory:
            raise ValueError(
                f"LossBands band.warm_up must be 2 to band.memory ({self.memory}), got {self.warm_up}"
            )
        if self.least < 0:
            raise ValueError(f"LossBands band.least is a share of the mean, 0 or more, got {self.least}")

    @property
    def pace(self) -> float:
        """Share of the way to a new value that the mean goes at each."""
        return float(1.0 - 2.0 ** (-1.0 / self.half_life))


@dataclass(frozen=True, kw_only=True)
class Excursion:
    """A stretch of one bucket's steps above its band."""

    bucket: int
    since: int
    """Optimizer step at which it began."""
    last: int
    """Optimizer step seen last; the loss may still be above."""
    lasted: int
    """Steps of the bucket."""
    highest: float
    low: float
    """The band at the last step."""
    high: float


class Band:
    """The running band of one bucket.

    With x the bucket's mean loss in a step, w its weight, c its mean before the step, u = max(1, sqrt(usual
    weight / w)), which widens the band for steps with little supervision:

        deviation d   = max(1.4826 median |(x' - c') / u'| over the last `memory` steps, least x |c|)
        band          = c +- width x d x u
        afterwards  c = c + pace x (x clipped to the band - c)

    Only above counts: falling faster than usual is what learning looks like.
    """

    def __init__(self, bucket: int, rule: BandRule) -> None:
        self.bucket = bucket
        self.rule = rule
        self.seen = 0
        self.centre = 0.0
        self.usual_weight = 0.0
        self.deviations: list[float] = []
        self.excursion: Excursion | None = None
        """The stretch above the band that is going on, from its first step."""

    @property
    def out(self) -> bool:
        """True during an excursion that is long enough to tell."""
        return self.excursion is not None and self.excursion.lasted >= self.rule.patience

    def limits(self, weight: float | None = None) -> tuple[float, float] | None:
        """(low, high) for a step of this weight, or of the usual one; None until the band is trusted."""
        if self.seen < self.rule.warm_up:
            return None
        half = self._half(self._widening(self.usual_weight if weight is None else weight))
        return self.centre - half, self.centre + half

    def add(self, loss: float, weight: float, step: int) -> Excursion | None:
        """Count one step of the bucket; returns the excursion when it has just become one."""
        limits = self.limits(weight)
        if limits is None or loss <= limits[1]:
            self.excursion = None
        else:
            self.excursion = self._longer(loss, limits, step)
        self._follow(loss, weight, limits)
        due = self.excursion is not None and self.excursion.lasted == self.rule.patience
        return self.excursion if due else None

    def _longer(self, loss: float, limits: tuple[float, float], step: int) -> Excursion:
        before = self.excursion
        return Excursion(
            bucket=self.bucket,
            since=before.since if before else step,
            last=step,
            lasted=before.lasted + 1 if before else 1,
            highest=max(before.highest, loss) if before else loss,
            low=limits[0],
            high=limits[1],
        )

    def _follow(self, loss: float, weight: float, limits: tuple[float, float] | None) -> None:
        pace = max(self.rule.pace, 1.0 / (self.seen + 1))  # at first a plain mean
        inside = min(max(loss, limits[0]), limits[1]) if limits else loss
        if self.seen:
            moved = abs(inside - self.centre) / self._widening(weight)
            self.deviations = [*self.deviations, moved][-self.rule.memory :]
        self.centre += pace * (inside - self.centre)
        self.usual_weight += pace * (weight - self.usual_weight)
        self.seen += 1

    def _widening(self, weight: float) -> float:
        return max(1.0, math.sqrt(self.usual_weight / weight)) if weight else 1.0

    def _half(self, widening: float) -> float:
        deviation = MAD_TO_DEVIATION * statistics.median(self.deviations)
        return self.rule.width * max(deviation, self.rule.least * abs(self.centre)) * widening

    def state_dict(self) -> dict[str, Any]:
        return {
            "seen": self.seen,
            "centre": self.centre,
            "usual_weight": self.usual_weight,
            "deviations": self.deviations,
            "excursion": asdict(self.excursion) if self.excursion else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen, self.centre, self.usual_weight = state["seen"], state["centre"], state["usual_weight"]
        self.deviations = list(state["deviations"])
        self.excursion = Excursion(**state["excursion"]) if state["excursion"] else None
