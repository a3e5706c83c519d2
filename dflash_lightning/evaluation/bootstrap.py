"""How sure the difference between two drafters is, given that prompts differ: a paired bootstrap.

in    tokens and rounds of each prompt under A and under B
out   pooled acceptance length of B less that of A, with an interval
law   pure; prompts are drawn with replacement, each with both of its results, so that what makes a prompt
      easy for both cancels out

Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13 (percentile intervals).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
CELLS_AT_ONCE = 1 << 22  # drawn numbers of one piece: 32 MiB


@dataclass(frozen=True)
class Interval:
    """A difference of pooled acceptance lengths, and where it would lie on other prompts of the kind."""

    difference: float
    low: float
    high: float
    confidence: float
    resamples: int

    @property
    def decided(self) -> bool:
        """Whether the interval excludes no difference at all."""
        return self.low > 0 or self.high < 0


def paired_bootstrap(
    rounds_a: Sequence[Sequence[int]],
    rounds_b: Sequence[Sequence[int]],
    *,
    resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Percentile interval for pooled tau of B less pooled tau of A.

    Args:
        rounds_a, rounds_b: tokens committed per round, prompt by prompt in the same order. Prompts that made
            no round under one of them are left out.

    Raises:
        ValueError: other prompts, or none that made a round.
    """
    if len(rounds_a) != len(rounds_b):
        raise ValueError(
            f"a paired comparison needs the same prompts, got {len(rounds_a)} and {len(rounds_b)}"
        )
    pairs = [(a, b) for a, b in zip(rounds_a, rounds_b, strict=True) if len(a) and len(b)]
    if not pairs:
        raise ValueError("no prompt made a round, so there is nothing to compare")
    sums = np.array([[sum(a), len(a), sum(b), len(b)] for a, b in pairs], dtype=np.int64)
    rng = np.random.default_rng(seed)
    per_piece = max(1, CELLS_AT_ONCE // len(sums))
    pieces = [min(per_piece, resamples - start) for start in range(0, resamples, per_piece)]
    drawn = [differences(sums, rng.integers(len(sums), size=(count, len(sums)))) for count in pieces]
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(drawn), [tail, 1 - tail])
    whole = differences(sums, np.arange(len(sums))[None])
    return Interval(float(whole[0]), float(low), float(high), confidence, resamples)


def differences(sums: IntArray, drawn: IntArray) -> FloatArray:
    """Pooled tau of B less that of A for each sample of prompts.

    Args:
        sums: [prompts, 4] tokens and rounds under A, tokens and rounds under B.
        drawn: [samples, prompts] which prompts are in each sample.
    """
    tokens_a, rounds_a, tokens_b, rounds_b = (column[drawn].sum(axis=1) for column in sums.T)
    difference: FloatArray = tokens_b / rounds_b - tokens_a / rounds_a
    return difference
