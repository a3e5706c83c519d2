"""Cuts lengths into ranges that differ in loss, where the log has lengths but no buckets.

in    length [n], movement [n] of the loss
out   group [n], ranges in rising order
law   ranges do not overlap; a cut is made only where the loss on its two sides differs clearly
"""

import numpy as np

from dflash_lightning.report.run import FloatArray, IntArray

MOST_GROUPS = 8
FEWEST_IN_GROUP = 8
CLEAR = 15.0
"""A cut must lower the sum of squares by this many times the variance that is left (an F of 15): the best of
all cuts through pure noise stays below it 99 times in 100."""


def length_groups(length: FloatArray, movement: FloatArray) -> IntArray:
    """The best cut first, then the best in either half, and so on, as a regression tree grows."""
    order = np.argsort(length, kind="stable")
    sorted_length, sorted_loss = length[order], movement[order]
    edges = [0, len(length)]
    while len(edges) <= MOST_GROUPS:
        cuts = [_best_cut(sorted_length, sorted_loss, a, b) for a, b in zip(edges, edges[1:], strict=False)]
        gain, place = max(cuts)
        if gain < CLEAR:
            break
        edges = sorted([*edges, place])
    group = np.empty(len(length), np.int64)
    group[order] = np.searchsorted(edges[1:], np.arange(len(length)), side="right")
    return group


def _best_cut(length: FloatArray, loss: FloatArray, start: int, stop: int) -> tuple[float, int]:
    """(gain in units of the variance left, where the right side begins); gain 0 where no cut is allowed."""
    count = stop - start
    if count < 2 * FEWEST_IN_GROUP:
        return 0.0, start
    values = loss[start:stop] - loss[start:stop].mean()
    left = np.arange(1, count)
    sums = np.cumsum(values)[:-1]
    gains = sums**2 * (1 / left + 1 / (count - left))  # squares between both sides, as all values sum to 0
    allowed = (
        (left >= FEWEST_IN_GROUP) & (count - left >= FEWEST_IN_GROUP) & (np.diff(length[start:stop]) > 0)
    )
    if not allowed.any():
        return 0.0, start
    best = int(np.argmax(np.where(allowed, gains, -1.0)))
    rest = (float(values @ values) - float(gains[best])) / max(1, count - 2)
    return float(gains[best]) / max(rest, 1e-30), start + best + 1
