"""Several logs of one resumed run -> one.

in    each file's rows, oldest first
out   the rows of one training, in order
law   where a later file repeats steps of an earlier one, the earlier values are dropped
"""

from collections.abc import Sequence

import numpy as np

from dflash_lightning.report.sources.rows import Row, Rows

STEP = "train/step"
FRESH_INTERVALS = 1.5
"""A log whose first step lies beyond this many of its own intervals goes on from an earlier one."""


def join(parts: Sequence[Rows], *, same_run: bool) -> Rows:
    """The newest log, with the earlier ones that it goes on from.

    `same_run` says that all belong to one run (W&B's run id); else a log that begins at its first step is
    a fresh run, and what came before it is another one.
    """
    used = [parts[-1]]
    for earlier in reversed(parts[:-1]):
        if not same_run and not _goes_on(used[0]):
            break
        used.insert(0, earlier)
    if len(used) == 1:
        return used[0]
    rows: list[Row] = []
    for part in used:
        first = min(_steps(part), default=np.inf)
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
    return [row[STEP] for row in part.rows if STEP in row]


def _goes_on(part: Rows) -> bool:
    steps = np.unique(_steps(part))
    interval = float(np.median(np.diff(steps))) if len(steps) > 1 else 1.0
    return len(steps) > 0 and bool(steps[0] > FRESH_INTERVALS * interval)
