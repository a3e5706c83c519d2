"""How sure the difference between two drafters is, given that prompts differ: a paired bootstrap.

in    tokens and rounds of each prompt under A and under B
out   pooled acceptance length of B less that of A, with an interval
law   pure; prompts are drawn with replacement, each with both of its results, so that what makes a prompt
      easy for both cancels out; few prompts decide nothing, however much they agree

Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13 (percentile intervals).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2, nan

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
CELLS_AT_ONCE = 1 << 22  # drawn numbers of one piece: 32 MiB


@dataclass(frozen=True)
class Interval:
    """A difference of pooled acceptance lengths, and where it would lie on other prompts of the kind."""

    difference: float
    """NaN without a prompt."""
    low: float
    high: float
    """NaN with fewer than two prompts: one alone does not say how much prompts differ."""
    confidence: float
    resamples: int
    prompts: int
    """Those that made a round under both drafters."""

    @property
    def enough(self) -> bool:
        return self.prompts >= fewest_prompts(self.confidence)

    @property
    def decided(self) -> bool:
        """Whether there are enough prompts, and the interval excludes no difference at all."""
        return self.enough and (self.low > 0 or self.high < 0)


def fewest_prompts(confidence: float) -> int:
    """Prompts below which nothing is decided: so few favour the same drafter, all of them, by chance alone
    more often than 1 - confidence (2 / 2^n for n fair coins). 6 for 95%."""
    return ceil(1 - log2(1 - confidence))


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
        ValueError: other prompts, or a confidence that is none.
    """
    if len(rounds_a) != len(rounds_b):
        raise ValueError(
            f"a paired comparison needs the same prompts, got {len(rounds_a)} and {len(rounds_b)}"
        )
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is a share between 0 and 1, got {confidence}")
    pairs = [(a, b) for a, b in zip(rounds_a, rounds_b, strict=True) if len(a) and len(b)]
    if not pairs:
        return Interval(nan, nan, nan, confidence, resamples, 0)
    sums = np.array([[sum(a), len(a), sum(b), len(b)] for a, b in pairs], dtype=np.int64)
    whole = float(differences(sums, np.arange(len(sums))[None])[0])
    if len(pairs) == 1:
        return Interval(whole, nan, nan, confidence, resamples, 1)
    rng = np.random.default_rng(seed)
    per_piece = max(1, CELLS_AT_ONCE // len(sums))
    pieces = [min(per_piece, resamples - start) for start in range(0, resamples, per_piece)]
    drawn = [differences(sums, rng.integers(len(sums), size=(count, len(sums)))) for count in pieces]
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(drawn), [tail, 1 - tail])
    return Interval(whole, float(low), float(high), confidence, resamples, len(pairs))


def differences(sums: IntArray, drawn: IntArray) -> FloatArray:
    """Pooled tau of B less that of A for each sample of prompts.

    Args:
        sums: [prompts, 4] tokens and rounds under A, tokens and rounds under B.
        drawn: [samples, prompts] which prompts are in each sample.
    """
    tokens_a, rounds_a, tokens_b, rounds_b = (column[drawn].sum(axis=1) for column in sums.T)
    difference: FloatArray = tokens_b / rounds_b - tokens_a / rounds_a
    return difference
