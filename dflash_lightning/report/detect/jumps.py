"""Finds rises that stay and single spikes in a noisy curve around 0.

in    values [n] in order, no NaN
out   Shift or None; indices of spikes
law   scales come from the curve itself by medians, so that one jump does not hide the next
"""

from dataclasses import dataclass

import numpy as np

from dflash_lightning.report.detect.curve import robust_sd, running_median
from dflash_lightning.report.run import FloatArray, IntArray

SHORTEST_SIDE, LONGEST_SIDE = 5, 25
"""Values on each side of a place whose medians are compared: n / 20, within these."""
SHIFT_SCORE = 7.0
"""A rise counts from this many times what such differences usually are: normal noise reaches 4 in 10,000
places, slowly wandering noise 5 to 6."""
SPIKE_SCORE = 4.0
"""A spike counts from this many times what all but 3 % of the values nearby stay within: 8.7 deviations of
normal noise, and more where batches are heavy-tailed."""
ORDINARY = 0.97


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A rise that stays for at least `side` values."""

    at: int
    """Index of the first value after the rise."""
    rise: float
    """Median after - median before."""
    score: float
    """The rise in units of what such differences usually are."""
    stays: bool
    """At least half of it is left in the rest of the curve."""
    side: int


def side_length(count: int) -> int:
    return int(np.clip(count // 20, SHORTEST_SIDE, LONGEST_SIDE))


def largest_rise(values: FloatArray) -> Shift | None:
    """The place where the medians of both sides differ most, upward; None for under three sides of values."""
    side = side_length(len(values))
    if len(values) < 3 * side:
        return None
    medians = np.median(np.lib.stride_tricks.sliding_window_view(values, side), axis=1)
    differences = medians[side:] - medians[:-side]  # [i]: values i+side.. against i..
    usual = max(robust_sd(differences), robust_sd(np.diff(values)) / np.sqrt(2 * side))
    place = int(np.argmax(differences))
    rise = float(differences[place])
    if usual == 0.0 or rise <= 0.0:
        return None
    before = float(medians[place])
    at = _first_high(values, before + rise / 2, place + 1, place + 2 * side)
    stays = float(np.median(values[at:])) >= before + rise / 2
    return Shift(at=at, rise=rise, score=rise / usual, stays=stays, side=side)


def _first_high(values: FloatArray, level: float, start: int, stop: int) -> int:
    """The first of three values in a row, two of which lie above `level`; `stop` lies behind the rise."""
    high = values[start : stop + 2] > level
    for i in range(len(high) - 2):
        if high[i] and high[i : i + 3].sum() >= 2:
            return start + i
    return start + (stop - start) // 2


def spikes(values: FloatArray) -> IntArray:
    """Indices of single high values: far above their neighbours' median, in units of the usual distance."""
    half = side_length(len(values))
    if len(values) < 8 * half:
        return np.empty(0, np.int64)
    distance = values - running_median(values, half)
    size = np.abs(distance)
    width = running_median(size, 4 * half)  # noise falls with the loss: what is usual depends on the place
    known = slice(half, None)  # what came before the first values is not known
    tail = float(np.quantile((size / np.maximum(width, 1e-30))[known], ORDINARY))
    found = (distance > SPIKE_SCORE * tail * width) & (width > 0)
    return np.flatnonzero(found[known]) + half
