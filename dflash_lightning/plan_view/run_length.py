"""How long the run is, and the learning rates it passes through.

in    windows of one epoch, max_epochs, max_steps; the schedule as a function of the share that is done
out   RunLength; LearningRates
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RunLength:
    """Optimizer steps of the whole run."""

    steps: int | None
    """None where neither max_epochs nor max_steps is known."""
    exact: bool
    """False where other epochs were taken to be as long as this one: they differ by a few steps."""


@dataclass(frozen=True, kw_only=True)
class LearningRates:
    """What the optimizer is given, at the middle of the first and last step, and at most in between."""

    first: float
    peak: float
    last: float


def run_length(steps_per_epoch: int, *, max_epochs: int | None, max_steps: int) -> RunLength:
    """Planning every epoch would take as long as planning this one, each: later epochs are assumed alike."""
    capped = max_steps >= 0
    if max_epochs is None:
        return RunLength(steps=max_steps if capped else None, exact=True)
    steps = steps_per_epoch * max_epochs
    if capped and max_steps <= steps:
        return RunLength(steps=max_steps, exact=True)
    return RunLength(steps=steps, exact=max_epochs == 1)


def learning_rates(rate: Callable[[float], float], steps: int, *, samples: int = 1000) -> LearningRates:
    """A run of `steps` steps; step i happens when share (i + 1/2) / steps of the run is done.

    The peak is sought at `samples` steps and around the best of them: the schedule rises once and falls once.
    """

    def at(step: int) -> float:
        return rate((step + 0.5) / steps)

    stride = max(1, steps // samples)
    best = max(range(0, steps, stride), key=at)
    around = range(max(0, best - stride), min(steps, best + stride + 1))
    return LearningRates(first=at(0), peak=max(map(at, around)), last=at(steps - 1))
