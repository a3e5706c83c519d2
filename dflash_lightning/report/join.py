"""Which logs of a folder make up the run, and what they hold together.

in    each file's rows, oldest first: of fit, of resumed fits, of validate and test, of starts that failed
out   the rows of one training, in order
law   a log without training is no part of a run; where a later file repeats steps of an earlier one, the
      earlier values are dropped
"""

from collections.abc import Sequence

import numpy as np

from dflash_lightning.report.config import CONFIG, load_config
from dflash_lightning.report.run import LOSS
from dflash_lightning.report.sources.find import Relation
from dflash_lightning.report.sources.rows import Rows

STEP = "train/step"
FRESH_INTERVALS = 1.5
"""A log whose first step lies beyond this many of its own intervals goes on from an earlier one."""


def holds_training(part: Rows) -> bool:
    """Whether it has a loss of a training step; a log of validate or test has none."""
    return bool(_steps(part))


def logs_of_run(parts: Sequence[Rows], relation: Relation) -> list[Rows]:
    """The newest log with training, behind the earlier ones that it goes on from; empty where none has any.

    Raises: ValueError where several logs hold training that have nothing to do with one another.
    """
    training = [part for part in parts if holds_training(part)]
    if relation == "apart" and len(training) > 1:
        names = ", ".join(sorted(part.path.name for part in training))
        raise ValueError(f"{training[0].path.parent} holds several logs ({names}): name the one to read")
    if relation != "versions":
        return training
    first = len(training) - 1
    while first > 0 and _goes_on(training[first], training[:first]):
        first -= 1
    return training[max(0, first) :]


def join(used: Sequence[Rows]) -> Rows:
    """The logs of one run as one."""
    if len(used) == 1:
        return used[0]
    rows = used[0].rows
    for part in used[1:]:
        first = min(_steps(part))  # validations lie on steps too, but repeat none
        rows = [row for row in rows if row.get(STEP, -np.inf) < first] + part.rows
    folders = ", ".join(part.path.parent.name for part in used)
    return Rows(
        path=used[-1].path,
        rows=rows,
        complete=used[-1].complete,
        notes=[
            f"joined {len(used)} logs of one resumed run: {folders}",
            *(note for part in used for note in part.notes),
        ],
    )


def _steps(part: Rows) -> list[float]:
    return [row[STEP] for row in part.rows if STEP in row and LOSS in row]


def _goes_on(part: Rows, earlier: Sequence[Rows]) -> bool:
    """By the checkpoint that its config names, else by its first step. A config that names none does not say:
    a queue that starts a job again resumes without one."""
    first = min(_steps(part))
    if first <= min(min(_steps(one)) for one in earlier):  # nothing of them would be left
        return False
    config = load_config(part.path.parent / CONFIG)
    if isinstance(config, dict) and config.get("ckpt_path"):
        return True
    return first > FRESH_INTERVALS * _interval([*earlier, part])


def _interval(parts: Sequence[Rows]) -> float:
    """Steps from one value to the next, in the newest log that has two; else the first step of all."""
    steps = [np.unique(_steps(part)) for part in parts]
    gaps = [float(np.median(np.diff(one))) for one in steps if len(one) > 1]
    return gaps[-1] if gaps else float(min(one[0] for one in steps))
