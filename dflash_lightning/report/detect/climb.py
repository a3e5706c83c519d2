"""Finds a loss that climbs slowly and does not come back, which has no place where it jumps.

in    values [n] in order, no NaN, the mix taken out
out   Climb or None
law   what waves and ladders fall by, as often as they rise, counts against a climb
"""

from dataclasses import dataclass

import numpy as np

from dflash_lightning.report.detect.curve import robust_sd
from dflash_lightning.report.detect.jumps import SHIFT_SCORE, side_length
from dflash_lightning.report.run import FloatArray

START_SHARE = 0.2
"""This first part is left out: a loss that falls fast says nothing about how far one comes back."""
FEWEST_BLOCKS = 8
LEAST_CLIMB = 0.1
"""A climb by less than this share of the loss may be drift."""


@dataclass(frozen=True, kw_only=True)
class Climb:
    """From the lowest block of values to the last ones."""

    at: int
    """Index from which on the loss climbs."""
    rise: float
    score: float
    """The rise in units of what the loss falls by from one block to the next."""


def climb(values: FloatArray) -> Climb | None:
    """None where the last values are not clearly above the lowest."""
    start, side = int(START_SHARE * len(values)), side_length(len(values))
    count = (len(values) - start) // side
    if count < FEWEST_BLOCKS:
        return None
    start = len(values) - count * side
    medians = np.median(values[start:].reshape(count, side), axis=1)
    lowest = int(np.argmin(medians))
    rise = float(medians[-3:].min() - medians[lowest])
    falls = np.minimum(np.diff(medians), 0.0)
    usual = max(float(np.sqrt(np.mean(falls**2))), robust_sd(np.diff(values)) / np.sqrt(2 * side))
    if usual == 0.0 or rise < SHIFT_SCORE * usual or rise < LEAST_CLIMB * abs(float(medians[lowest])):
        return None
    return Climb(at=start + (lowest + 1) * side, rise=rise, score=rise / usual)
