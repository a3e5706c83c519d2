"""Tools for noisy curves: a trend that only falls, and scales that outliers do not move.

in    values [n] in the order of training, no NaN
out   arrays [n], or one scale
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dflash_lightning.report.run import FloatArray, IntArray

NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution / its median absolute deviation."""
CLIP = 5.0
"""Values beyond this many robust deviations of their block do not move the block's mean."""
FIRST_BLOCK = 4
GROWTH = 0.2
"""Blocks grow by this share of what lies before them: losses fall fast first, then slowly."""
MOST_BLOCKS = 30
"""A block is at most n / MOST_BLOCKS long, or LONG_BLOCK."""
LONG_BLOCK = 8


def robust_sd(values: FloatArray) -> float:
    """Standard deviation from the median absolute deviation; 0 for no values."""
    if len(values) == 0:
        return 0.0
    return NORMAL_MAD * float(np.median(np.abs(values - np.median(values))))


def trend(values: FloatArray) -> FloatArray:
    """The falling trend below a curve: the lowest block mean so far, joined by straight lines.

    Only falls, so that a rise or a ladder stays in `values - trend`, whenever it comes.
    """
    if len(values) < 2 * FIRST_BLOCK:
        return np.full(len(values), np.median(values)) if len(values) else values
    edges = block_edges(len(values))
    centres = (edges[:-1] + edges[1:] - 1) / 2
    lowest = np.minimum.accumulate(_clipped_means(values, edges))
    line = np.interp(np.arange(len(values)), centres, lowest)
    slope = (lowest[1] - lowest[0]) / (centres[1] - centres[0])
    before = np.arange(int(np.ceil(centres[0])))
    line[: len(before)] += slope * (before - centres[0])  # the first fall goes on to the left
    return line


def block_edges(count: int) -> IntArray:
    """Where blocks begin and end, as whole numbers from 0 to `count`."""
    edges = [0]
    while edges[-1] < count:
        longest = max(LONG_BLOCK, count // MOST_BLOCKS)
        edges.append(edges[-1] + min(longest, max(FIRST_BLOCK, int(GROWTH * edges[-1]))))
    if count - edges[-2] < FIRST_BLOCK:  # the last block takes a short rest
        edges.pop(-2)
    return np.array([*edges[:-1], count], np.int64)


def _clipped_means(values: FloatArray, edges: IntArray) -> FloatArray:
    """Mean of each block without the reach of its outliers."""
    block = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    centre = _medians(values, block, edges)
    reach = CLIP * NORMAL_MAD * _medians(np.abs(values - centre[block]), block, edges)
    reach = np.where(reach > 0, reach, np.inf)[block]
    clipped = np.clip(values, centre[block] - reach, centre[block] + reach)
    return np.asarray(np.add.reduceat(clipped, edges[:-1]) / np.diff(edges), np.float64)


def _medians(values: FloatArray, block: IntArray, edges: IntArray) -> FloatArray:
    """Median of each block, for all blocks at once."""
    ranked = values[np.lexsort((values, block))]
    last = np.diff(edges) - 1
    return np.asarray((ranked[edges[:-1] + last // 2] + ranked[edges[:-1] + (last + 1) // 2]) / 2, np.float64)


def movement(values: FloatArray) -> FloatArray:
    """What a curve does beside falling, around 0."""
    rest = values - trend(values)
    return rest - np.median(rest) if len(rest) else rest


def jitter(values: FloatArray) -> float:
    """Standard deviation of a value from the differences between neighbours, so without trends and waves."""
    return float(np.sqrt(np.mean(np.diff(values) ** 2) / 2)) if len(values) > 1 else 0.0


def running_median(values: FloatArray, half: int) -> FloatArray:
    """Median of each value and its `half` neighbours on both sides; the curve is mirrored at its ends."""
    padded = np.pad(values, half, mode="reflect")
    return np.asarray(np.median(sliding_window_view(padded, 2 * half + 1), axis=1), np.float64)
