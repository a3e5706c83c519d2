"""What the gradient norm says about a place in training.

in    norm at norm_steps, both [g], without gaps
out   how far it grew there; the place where it broke
"""

import numpy as np

from dflash_lightning.report.detect.jumps import SHIFT_SCORE, Shift, largest_rise
from dflash_lightning.report.run import FloatArray

JUMPS = 3.0
"""A norm of this many times its median before goes with an instability."""
BREAKS = 5.0
"""One that stays this many times higher, and above all before, is an instability by itself."""
LOOK_BACK, LOOK_AHEAD = 50, 3
FEWEST_BEFORE = 5


def growth(norm_steps: FloatArray, norm: FloatArray, step: float) -> float | None:
    """The largest norm just after `step` / the median before it; None where too little was logged."""
    before, after = norm[norm_steps < step][-LOOK_BACK:], norm[norm_steps >= step][:LOOK_AHEAD]
    if len(before) < FEWEST_BEFORE or len(after) == 0 or np.median(before) <= 0:
        return None
    return float(after.max() / np.median(before))


def breaking(norm: FloatArray, start: int) -> Shift | None:
    """Where the norm rises to stay several times higher than ever since index `start`; rise is a factor."""
    logs = np.log(np.maximum(norm, 1e-30))[start:]
    found = largest_rise(logs)
    if found is None or found.score < SHIFT_SCORE or found.rise < np.log(BREAKS):
        return None
    after = logs[found.at : found.at + found.side]
    if np.median(after) <= logs[: found.at].max(initial=-np.inf):
        return None
    return Shift(
        at=found.at + start,
        rise=float(np.exp(found.rise)),
        score=found.score,
        stays=found.stays,
        side=found.side,
    )
