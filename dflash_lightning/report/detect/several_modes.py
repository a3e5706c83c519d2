"""Verdict "several modes": the loss jumps between levels whose cause the log does not show.

in    StepCurve
out   Verdict or None
"""

import numpy as np

from dflash_lightning.report.detect.modes import count_modes
from dflash_lightning.report.detect.period import autocorrelation
from dflash_lightning.report.detect.step_curve import StepCurve
from dflash_lightning.report.kinds import Verdict
from dflash_lightning.report.run import FloatArray

FEWEST = 100
"""Fewer values show no humps reliably."""
FEWEST_APART = 60
"""The same for values that do not correlate."""
CORRELATED = 0.2
"""Values are thinned until neighbours correlate less: slow waves are no levels."""
START_SHARE = 0.2
"""The first part is left out: while the loss falls fast, its levels move."""


def levels_of(curve: StepCurve) -> int:
    """How many levels what the mix leaves over has, or the loss alone; 1 for too few values to tell."""
    values = _judged(curve)
    if len(values) < FEWEST or np.ptp(values) == 0:
        return 1
    lags = np.flatnonzero(autocorrelation(values) < CORRELATED)
    thinned = values[:: int(lags[0]) if len(lags) else len(values)]
    return count_modes(thinned) if len(thinned) >= FEWEST_APART else 1


def several_modes(curve: StepCurve, modes: int) -> Verdict | None:
    """`modes` as `levels_of` counts them."""
    if modes < 2:
        return None
    values = _judged(curve)
    cause = (
        "the levels do not come from the lengths: look at the source of the samples"
        if curve.mix_known
        else "with the loss alone the levels cannot be tied to lengths: log seq_len, or the bucket, beside it"
    )
    return Verdict(
        "several modes",
        f"several modes: the loss jumps between at least {modes} levels, as one noisy curve does not",
        [
            f"Silverman's test refuses fewer than {modes} humps (p below 0.01, {len(values)} values)",
            f"it moves by {np.std(values):.3g} (standard deviation)",
            cause,
        ],
    )


def _judged(curve: StepCurve) -> FloatArray:
    return curve.residual[int(START_SHARE * len(curve)) :]
