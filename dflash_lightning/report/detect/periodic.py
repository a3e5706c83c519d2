"""Verdict "periodic": the loss repeats the same pattern.

in    StepCurve
out   Verdict or None, with the period in steps
"""

import numpy as np

from dflash_lightning.report.detect.period import PATTERN_SHARE, Period, find_period
from dflash_lightning.report.detect.step_curve import StepCurve
from dflash_lightning.report.kinds import Verdict
from dflash_lightning.report.run import FloatArray

STRICT_SHARE = 0.85
"""What a pattern must explain where the mix makes it, or may: good orders repeat nearly, cycles exactly."""
FIRST_STEPS = 4
"""Beginnings of the pattern that a verdict lists."""


def periodic(curve: StepCurve, modes: int) -> Verdict | None:
    """First what the mix leaves over, then the curve as logged; `modes` is how many levels it has."""
    spacing = float(np.median(np.diff(curve.steps))) if len(curve) > 1 else 1.0
    least = STRICT_SHARE if modes > 1 and not curve.mix_known else PATTERN_SHARE
    found = find_period(_even(curve, curve.residual, spacing), least_share=least)
    by_mix = False
    if found is None and curve.mix_known:
        found, by_mix = find_period(_even(curve, curve.movement, spacing), least_share=STRICT_SHARE), True
    if found is None:
        return None
    return _verdict(curve, found, spacing, by_mix)


def _even(curve: StepCurve, values: FloatArray, spacing: float) -> FloatArray:
    """The curve at evenly spaced steps; the first fall of a run is left out."""
    skipped = len(curve) // 20
    steps = curve.steps[skipped:]
    return np.interp(np.arange(steps[0], steps[-1] + spacing / 2, spacing), steps, values[skipped:])


def _verdict(curve: StepCurve, found: Period, spacing: float, by_mix: bool) -> Verdict:
    length = found.length * spacing
    whole = by_mix or not curve.mix_known
    headline = (
        f"periodic: the loss repeats a pattern every {length:.3g} steps, "
        f"{found.share:.0%} of {'its movement' if whole else 'what the mix leaves over'}"
    )
    cause = (
        "the mix follows the same pattern: the batches come in a fixed order, so shuffle them"
        if by_mix
        else "look for data in a fixed order: sorted in every epoch, or sources that take turns"
    )
    return Verdict(
        "periodic",
        headline,
        [f"seen {found.repeats:.0f} times, {found.height:.3g} from its lowest to its highest point", cause],
        [int(curve.steps[0] + i * length) for i in range(FIRST_STEPS)],
    )
