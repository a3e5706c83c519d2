"""The loss per optimizer step, with the mix taken out where the log allows it.

in    Run
out   StepCurve
law   the finest log is used: single batches where they cover the steps, windows per bucket, the loss alone
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dflash_lightning.report.detect.curve import movement
from dflash_lightning.report.detect.labelled import Labelled
from dflash_lightning.report.detect.split import Split
from dflash_lightning.report.run import FloatArray, Run

COVERED = 0.8
"""Single batches of at least this share of the steps stand for the steps themselves."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepCurve:
    """n steps, rising."""

    steps: FloatArray
    loss: FloatArray
    """[n] as logged."""
    movement: FloatArray
    """[n] without its falling trend."""
    residual: FloatArray
    """[n] without the mix too, where that is known; else the movement."""
    mix_known: bool

    @property
    def unmixed(self) -> FloatArray:
        """[n] the loss without the mix, its trend still in it."""
        return self.loss - (self.movement - self.residual)

    def __len__(self) -> int:
        return len(self.steps)


def step_curve(run: Run, batches: Labelled | None, single: Split | None, windows: Split | None) -> StepCurve:
    """`single` is the split of `batches`, `windows` that of the logged windows; None where there is none."""
    if batches is not None and single is not None and covered(run, batches.steps) >= COVERED:
        steps, place = np.unique(batches.steps, return_inverse=True)
        loss = _mean_by(place, batches.loss, batches.weight)
        residual = _mean_by(place, single.residual, batches.weight)
        return StepCurve(steps=steps, loss=loss, movement=movement(loss), residual=residual, mix_known=True)
    kept = np.isfinite(run.loss)
    if windows is not None:
        moved, residual = windows.movement, windows.residual
    elif batches is not None and single is not None and len(batches.loss) == int(kept.sum()):
        moved, residual = single.movement, single.residual
    else:
        moved = movement(run.loss[kept])
        residual = moved
    return StepCurve(
        steps=run.steps[kept],
        loss=run.loss[kept],
        movement=moved,
        residual=residual,
        mix_known=residual is not moved,
    )


def covered(run: Run, steps: FloatArray) -> float:
    """Share of the run's steps that are among `steps` [m], rising: a log of single batches may begin
    late or end early."""
    first, last = min(run.steps[0], steps[0]), max(run.steps[-1], steps[-1])
    return len(np.unique(steps)) / float(last - first + 1)


def _mean_by(place: npt.NDArray[np.intp], values: FloatArray, weight: FloatArray) -> FloatArray:
    total = np.bincount(place, weight)
    plain = np.bincount(place, values) / np.bincount(place)
    return np.where(total > 0, np.bincount(place, values * weight) / np.where(total > 0, total, 1.0), plain)
