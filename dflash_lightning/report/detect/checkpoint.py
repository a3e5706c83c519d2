"""Verdict "checkpoint": training waits for storage.

in    Run, steps where the loss spikes
out   Verdict or None
law   where the log says what storage took, that decides; else stalls must come at regular steps
"""

from collections.abc import Sequence

import numpy as np

from dflash_lightning.report.detect.intervals import (
    Intervals,
    StorageWaits,
    intervals,
    stalls,
    storage_waits,
)
from dflash_lightning.report.kinds import Verdict
from dflash_lightning.report.run import FloatArray, IntArray, Run

LOST_SHARE = 0.01
"""Waits below this share of the run are not worth a word: a training step should never wait for storage."""
FEWEST_STALLS = 3
"""Fewer stalls cannot be called regular."""
REGULAR = 0.15
"""Distances between stalls may differ from a multiple of the usual one by this share of it,"""
MOSTLY = 0.8
"""in at least this share of them."""
MOST_STEPS = 12


def checkpoint(run: Run, spike_steps: Sequence[float]) -> Verdict | None:
    """`spike_steps`: where the loss jumps, to say whether these are the same places."""
    found, waits = intervals(run), storage_waits(run)
    if waits is not None:
        return _known_waits(waits, found, spike_steps)
    return _regular_stalls(run, found, spike_steps) if found is not None else None


def _known_waits(
    waits: StorageWaits, found: Intervals | None, spike_steps: Sequence[float]
) -> Verdict | None:
    lost = float(waits.seconds.sum())
    if waits.total_s <= 0 or lost < LOST_SHARE * waits.total_s:
        return None
    long = waits.seconds > max(0.1 * float(waits.seconds.max()), 0.0)
    steps = waits.steps[long]
    usual = float(np.median(waits.seconds[long]))
    evidence = [f"the longest wait is {waits.seconds.max():.0f} s, the usual one {usual:.0f} s"]
    if found is not None:
        stalled = found.steps[stalls(found)]
        steps = np.array([_exact(step, stalled, waits.steps) for step in steps])
    return _verdict(lost, waits.total_s, steps, [*evidence, _beside_spikes(steps, spike_steps)])


def _exact(step: float, stalled: FloatArray, rows: FloatArray) -> float:
    """The step of a finer log that stalled inside the row that ends with `step`; `step` where none did."""
    before = rows[rows < step].max(initial=-np.inf)
    inside = stalled[(stalled > before) & (stalled <= step)]
    return float(inside[0]) if len(inside) else step


def _regular_stalls(run: Run, found: Intervals, spike_steps: Sequence[float]) -> Verdict | None:
    places = stalls(found)
    steps = found.steps[places]
    every = regular_distance(steps)
    lost = float((found.seconds - found.usual())[places].sum())
    total = float(found.seconds.sum())
    if every is None or lost < LOST_SHARE * total:
        return None
    evidence = [f"stalls come every {every:.0f} steps or a multiple; the log does not say what storage took"]
    if _at_validation(found, places, run.val_steps):
        evidence.append("validation runs at the same steps: its time is in the figure")
    return _verdict(lost, total, steps, [*evidence, _beside_spikes(steps, spike_steps)])


def regular_distance(steps: FloatArray) -> float | None:
    """The usual distance between steps if nearly all distances are whole multiples of it."""
    if len(steps) < FEWEST_STALLS:
        return None
    distances = np.diff(steps)
    usual = float(np.median(distances))
    off = np.abs(distances / usual - np.maximum(1, np.round(distances / usual)))
    return usual if float(np.mean(off <= REGULAR)) >= MOSTLY else None


def _at_validation(found: Intervals, places: IntArray, val_steps: FloatArray) -> bool:
    """Most stalls lie in an interval that follows, or holds, a validation."""
    ends = found.steps[places]
    starts = ends - found.count[places]
    held = [
        bool(((val_steps >= start) & (val_steps <= end)).any())
        for start, end in zip(starts, ends, strict=True)
    ]
    return float(np.mean(held)) >= MOSTLY


def _verdict(lost: float, total: float, steps: FloatArray, evidence: list[str]) -> Verdict:
    listed = [int(step) for step in steps]
    count = "once" if len(listed) == 1 else f"{len(listed)} times"
    headline = (
        f"checkpoint: training waits {count} for {lost:.0f} s in all, {lost / total:.1%} of the run's time"
    )
    return Verdict("checkpoint", headline, evidence, listed[:MOST_STEPS])


def _beside_spikes(steps: FloatArray, spike_steps: Sequence[float]) -> str:
    if not len(spike_steps):
        return "the loss does not jump at those steps"
    near = sum(bool((np.abs(steps - spike) <= 2).any()) for spike in spike_steps)
    return f"{near} of {len(spike_steps)} jumps of the loss lie within two steps of one"
