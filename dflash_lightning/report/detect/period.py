"""Finds a pattern that repeats.

in    values [n], evenly spaced, around 0
out   Period or None
law   a pattern must explain most of the curve, and more than the same pieces do when each is turned by chance
"""

from dataclasses import dataclass

import numpy as np

from dflash_lightning.report.run import FloatArray, IntArray

SHORTEST = 3
"""Shorter patterns (high, low, high, low) are how a good order alternates."""
FEWEST_REPEATS = 3
"""A pattern seen twice may be chance."""
NEAR_BEST = 0.9
"""The shortest lag whose correlation comes this near to the best is the period; longer ones are multiples."""
LEAST_CORRELATION = 0.35
MOST_BINS = 24
PATTERN_SHARE = 0.5
"""The pattern must explain this share of the variance."""
TURNS = 99
"""Random turns of the null: none of them may reach the pattern's share (p below 0.01)."""


@dataclass(frozen=True, kw_only=True)
class Period:
    """A pattern of `length` values."""

    length: float
    share: float
    """Share of the variance that the mean pattern explains, corrected for its freedom."""
    repeats: float
    height: float
    """Highest - lowest value of the mean pattern."""


def find_period(values: FloatArray, *, least_share: float = PATTERN_SHARE) -> Period | None:
    """The shortest pattern that explains at least `least_share`; None where there is none."""
    count = len(values)
    lag = _candidate(values) if count >= SHORTEST * FEWEST_REPEATS and np.ptp(values) > 0 else None
    if lag is None:
        return None
    lengths = lag + np.linspace(-0.5, 0.5, 11)  # the true period lies between two whole lags
    shares = [_pattern_share(values, _phase(count, length)) for length in lengths]
    best = int(np.argmax(shares))
    length, share = float(lengths[best]), shares[best]
    if share < least_share or share <= _by_chance(values, lag):
        return None
    means = _pattern(values, _phase(count, length))
    return Period(length=length, share=share, repeats=count / length, height=float(np.ptp(means)))


def _candidate(values: FloatArray) -> int | None:
    correlation = autocorrelation(values)[: len(values) // FEWEST_REPEATS + 1]
    below = np.flatnonzero(correlation < 0)
    first = max(SHORTEST, int(below[0])) if len(below) else len(correlation)
    inner = correlation[1:-1]
    peaks = 1 + np.flatnonzero((inner >= correlation[:-2]) & (inner >= correlation[2:]))
    peaks = peaks[(peaks >= first) & (correlation[peaks] >= LEAST_CORRELATION)]
    if len(peaks) == 0:
        return None
    return int(peaks[correlation[peaks] >= NEAR_BEST * correlation[peaks].max()][0])


def autocorrelation(values: FloatArray) -> FloatArray:
    """[n // 2] correlation of the curve with itself, moved by 0, 1, 2 ... values."""
    centred = values - values.mean()
    power = np.abs(np.fft.rfft(centred, 2 * len(values))) ** 2
    lags = np.arange(len(values) // 2)
    products = np.fft.irfft(power)[: len(lags)] / (len(values) - lags)
    return np.asarray(products / centred.var(), np.float64)


def _phase(count: int, length: float) -> IntArray:
    """[n] which part of the pattern each value belongs to."""
    bins = max(2, min(MOST_BINS, int(round(length))))
    places = np.floor(np.arange(count) * (bins / length) + 1e-9)  # a whole place must not round down
    return np.asarray(places % bins, np.int64)


def _pattern(values: FloatArray, phase: IntArray) -> FloatArray:
    return np.bincount(phase, values) / np.maximum(1, np.bincount(phase))


def _pattern_share(values: FloatArray, phase: IntArray) -> float:
    rest = values - _pattern(values, phase)[phase]
    count, freedom = len(values), int(phase.max()) + 1
    return float(1 - rest.var() / values.var() * (count - 1) / max(1, count - freedom))


def _by_chance(values: FloatArray, lag: int) -> float:
    """The largest share among random turns: each piece of one period keeps its shape and loses its place."""
    rng = np.random.default_rng(0)
    pieces = values[: len(values) // lag * lag].reshape(-1, lag)
    phase = _phase(pieces.size, float(lag))
    turns = rng.integers(0, lag, (TURNS, len(pieces), 1))
    places = (np.arange(lag) + turns) % lag
    return max(
        _pattern_share(pieces[np.arange(len(pieces))[:, None], turn].ravel(), phase) for turn in places
    )
