"""From a run's log to verdicts in words, most important first.

in    Run
out   list[Verdict], never empty
law   no verdict without figures; too few values give "unknown", nothing to see gives "steady"
"""

import numpy as np

from dflash_lightning.report.detect.checkpoint import checkpoint
from dflash_lightning.report.detect.instability import instability, jumping_steps, without_numbers
from dflash_lightning.report.detect.intervals import intervals, storage_waits
from dflash_lightning.report.detect.labelled import Labelled, labelled
from dflash_lightning.report.detect.mix import mix
from dflash_lightning.report.detect.periodic import periodic
from dflash_lightning.report.detect.sampling import sampling_artefact
from dflash_lightning.report.detect.several_modes import levels_of, several_modes
from dflash_lightning.report.detect.split import split_batches, split_windows
from dflash_lightning.report.detect.step_curve import StepCurve, step_curve
from dflash_lightning.report.kinds import KINDS as KINDS
from dflash_lightning.report.kinds import Verdict as Verdict
from dflash_lightning.report.run import FloatArray, Run

MIN_VALUES = 40
"""Fewer values of the loss cannot tell a trend from noise."""


def judge_run(run: Run) -> list[Verdict]:
    """What the log shows, most important first."""
    batches = labelled(run)
    single = split_batches(batches) if batches is not None and len(batches.loss) >= MIN_VALUES else None
    windows = split_windows(run)
    curve = step_curve(run, batches, single, windows)
    if len(curve) < MIN_VALUES:
        return _too_few(run, len(curve))
    norm, modes = run.column("train/grad_norm"), levels_of(curve)
    there = np.isfinite(norm)
    found = [
        instability(curve, run.steps[there], norm[there], _non_finite(run)),
        checkpoint(run, jumping_steps(curve)),
        sampling_artefact(batches, single, _window_loss(run, batches)) if batches and single else None,
        periodic(curve, modes),
        mix(single, windows),
    ]
    kept = [verdict for verdict in found if verdict is not None]
    if not any(verdict.kind in ("mix", "periodic", "instability") for verdict in kept):
        kept += [verdict for verdict in [several_modes(curve, modes)] if verdict is not None]
    kept.sort(key=lambda verdict: KINDS.index(verdict.kind))
    return kept or [_steady(curve, run)]


def _non_finite(run: Run) -> list[int]:
    return sorted({*run.non_finite, *(int(line["step"]) for line in run.skipped)})


def _window_loss(run: Run, batches: Labelled) -> FloatArray | None:
    """The logged curve; None where it is nothing but the single batches themselves."""
    steps, place = np.unique(batches.steps, return_inverse=True)
    means = np.bincount(place, batches.loss) / np.bincount(place)
    there = np.isfinite(run.loss) & np.isin(run.steps, steps)
    same = np.isclose(run.loss[there], means[np.searchsorted(steps, run.steps[there])])
    return None if len(same) and same.all() else run.loss[np.isfinite(run.loss)]


def _too_few(run: Run, values: int) -> list[Verdict]:
    """A loss that is no number is one, however short the log."""
    what = "1 value of the loss is" if values == 1 else f"{values} values of the loss are"
    unknown = Verdict("unknown", f"unknown: {what} too few, {MIN_VALUES} are needed")
    broken = without_numbers(_non_finite(run))
    return [unknown] if broken is None else [broken, unknown]


def _steady(curve: StepCurve, run: Run) -> Verdict:
    moved = float(np.std(curve.movement))
    share = moved / max(abs(float(np.median(curve.loss[len(curve) // 2 :]))), 1e-12)
    span = f"steps {curve.steps[0]:.0f} to {curve.steps[-1]:.0f}"
    return Verdict(
        "steady",
        f"steady: nothing stands out in {len(curve)} values, {span}",
        [
            f"around its trend the loss moves by {moved:.3g}, {share:.1%} of it (standard deviation)",
            "no rise, spike, repeated pattern or second level passes its threshold",
            *_cannot_know(curve, run),
        ],
    )


def _cannot_know(curve: StepCurve, run: Run) -> list[str]:
    """What this log has no values for."""
    missing = []
    if intervals(run) is None and storage_waits(run) is None:
        missing.append("it holds no times, so waits for storage would not show")
    if not np.isfinite(run.column("train/grad_norm")).any():
        missing.append("it holds no gradient norm, so a break that the loss does not show yet is not seen")
    if not curve.mix_known:
        missing.append("it ties no loss to a length or bucket, so nothing is known about the mix")
    return [f"what this log cannot tell: {'; '.join(missing)}"] if missing else []
