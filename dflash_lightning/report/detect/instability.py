"""Verdict "instability": the loss changes in a way that the mix does not explain.

in    StepCurve, the gradient norm, steps without a finite loss or gradient
out   Verdict or None, which names the first step
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dflash_lightning.report.detect.climb import Climb, climb
from dflash_lightning.report.detect.gradient_norm import JUMPS, breaking, growth
from dflash_lightning.report.detect.jumps import SHIFT_SCORE, Shift, largest_rise, spikes
from dflash_lightning.report.detect.step_curve import StepCurve
from dflash_lightning.report.kinds import Verdict
from dflash_lightning.report.run import FloatArray

START_SHARE = 0.03
"""This first part of a run is not judged: warm-up and the first fall are rough everywhere."""
LEAST_RISE = 0.05
"""A rise or spike below this share of the loss matters to nobody, however clear it is."""
SPIKE_RISE = 0.5
"""A spike adds at least this share of the loss where no gradient norm was logged to confirm it."""
BEFORE = 25
"""Values before a place that say what was usual there."""
MOST_STEPS = 12
"""Steps that a verdict lists."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that went wrong."""

    step: int
    headline: str
    evidence: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)


def instability(
    curve: StepCurve, norm_steps: FloatArray, norm: FloatArray, non_finite: Sequence[int]
) -> Verdict | None:
    """`norm` is the gradient norm at `norm_steps`; `non_finite`: steps whose loss or norm was no number."""
    rise = _rise(curve)
    found = [_tell_non_finite(non_finite)] if non_finite else []
    if rise is not None:
        found.append(_tell_rise(rise, curve, growth(norm_steps, norm, curve.steps[rise.at])))
    elif (broken := breaking(norm, _start(len(norm)))) is not None:
        found.append(_tell_norm(broken, norm_steps, norm))
    elif (slow := climb(curve.unmixed)) is not None:
        found.append(_tell_climb(slow, curve))
    high = [i for i in _spikes(curve, rise) if _confirmed(curve, i, growth(norm_steps, norm, curve.steps[i]))]
    found += [_tell_spikes(curve, high)] if high else []
    if not found:
        return None
    first, *later = sorted(found, key=lambda one: one.step)
    evidence = [*first.evidence, *(line for one in later for line in (one.headline, *one.evidence))]
    steps = sorted({step for one in found for step in one.steps})
    headline = f"instability: {first.headline}"
    return Verdict("instability", headline, [*evidence, _judged_on(curve)], steps[:MOST_STEPS])


def without_numbers(steps: Sequence[int]) -> Verdict | None:
    """What can be said of a log that is too short for the rest."""
    if not steps:
        return None
    found = _tell_non_finite(steps)
    return Verdict("instability", f"instability: {found.headline}", found.evidence, found.steps[:MOST_STEPS])


def jumping_steps(curve: StepCurve) -> list[float]:
    """Steps where the loss jumps in any way, confirmed or not."""
    rise = _rise(curve)
    places = [*_spikes(curve, rise), *([rise.at] if rise is not None else [])]
    return sorted(float(curve.steps[i]) for i in places)


def _start(count: int) -> int:
    return max(1, int(START_SHARE * count))


def _rise(curve: StepCurve) -> Shift | None:
    start = _start(len(curve))
    found = largest_rise(curve.unmixed[start:])
    if found is None or found.score < SHIFT_SCORE:
        return None
    found = replace(found, at=found.at + start)
    large = found.rise >= LEAST_RISE * abs(_usual(curve.loss, found.at))
    return found if large and _shows(curve.loss, found) else None


def _shows(loss: FloatArray, rise: Shift) -> bool:
    """Not where the loss itself goes on falling: behind a steep fall, more is taken out than the mix was."""
    before, after = loss[max(0, rise.at - rise.side) : rise.at], loss[rise.at : rise.at + rise.side]
    return bool(np.median(after) > np.median(before))


def _usual(values: FloatArray, at: int) -> float:
    return float(np.median(values[max(0, at - BEFORE) : max(1, at)]))


def _spikes(curve: StepCurve, rise: Shift | None) -> list[int]:
    """Indices of single high values outside the foot of a rise."""
    start = _start(len(curve))
    found = (spikes(curve.unmixed[start:]) + start).tolist()
    apart = [i for i in found if rise is None or abs(i - rise.at) > rise.side]
    return [i for i in apart if _height(curve, i) >= LEAST_RISE * abs(_usual(curve.loss, i))]


def _height(curve: StepCurve, at: int) -> float:
    return float(curve.unmixed[at]) - _usual(curve.unmixed, at)


def _confirmed(curve: StepCurve, at: int, grown: float | None) -> bool:
    if grown is not None:
        return grown >= JUMPS
    return _height(curve, at) >= SPIKE_RISE * abs(_usual(curve.loss, at))


def _tell_rise(rise: Shift, curve: StepCurve, grown: float | None) -> Finding:
    step = int(curve.steps[rise.at])
    before, stays = _usual(curve.loss, rise.at), "stays there" if rise.stays else "comes back later"
    evidence = [f"the rise is {rise.score:.0f} times what medians of {rise.side} values usually differ by"]
    if grown is not None:
        clause = "the gradient norm jumps too" if grown >= JUMPS else "the gradient norm does not jump"
        evidence.append(f"{clause}: {grown:.1f} times its median before")
    return Finding(
        step=step,
        headline=f"the loss rises by {rise.rise:.2g} from about {before:.3g} at step {step} and {stays}",
        evidence=evidence,
        steps=[step],
    )


def _tell_climb(slow: Climb, curve: StepCurve) -> Finding:
    step, before = int(curve.steps[slow.at]), _usual(curve.loss, slow.at)
    return Finding(
        step=step,
        headline=f"the loss climbs by {slow.rise:.2g} from about {before:.3g} at step {step} to the end",
        evidence=[
            f"the climb is {slow.score:.0f} times what the loss falls by between neighbouring stretches"
        ],
        steps=[step],
    )


def _tell_norm(broken: Shift, steps: FloatArray, norm: FloatArray) -> Finding:
    step = int(steps[broken.at])
    return Finding(
        step=step,
        headline=f"the gradient norm rises {broken.rise:.1f} times at step {step} and the loss not yet",
        evidence=[f"the norm's median before is {np.median(norm[: broken.at]):.3g}"],
        steps=[step],
    )


def _tell_spikes(curve: StepCurve, places: Sequence[int]) -> Finding:
    steps = [int(curve.steps[i]) for i in places]
    height = max(_height(curve, i) for i in places)
    count = "1 spike" if len(steps) == 1 else f"{len(steps)} spikes"
    return Finding(
        step=steps[0],
        headline=f"{count} of the loss, first at step {steps[0]}, by up to {height:.2g}",
        evidence=[f"the loss comes back after each; {len(steps) / len(curve):.1%} of the values are spikes"],
        steps=steps,
    )


def _tell_non_finite(steps: Sequence[int]) -> Finding:
    listed = sorted(set(steps))
    count = "1 step has" if len(listed) == 1 else f"{len(listed)} steps have"
    return Finding(
        step=listed[0],
        headline=f"{count} no finite loss or gradient, first step {listed[0]}",
        steps=listed,
    )


def _judged_on(curve: StepCurve) -> str:
    if curve.mix_known:
        return "judged on the loss without the mix of lengths"
    return "the log ties no loss to a length, so the mix could not be taken out"
