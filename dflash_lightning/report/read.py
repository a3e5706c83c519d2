"""Finds and reads the log of a run.

in    a run's folder, or one metrics.csv
out   Run
"""

from pathlib import Path

from dflash_lightning.report.run import LOSS, Run
from dflash_lightning.report.sources.csv_log import read_csv
from dflash_lightning.report.sources.rows import Rows, joined
from dflash_lightning.report.table import tabulate


def read_run(path: Path, *, steps: tuple[int, int] | None = None) -> Run:
    """The log at `path`; `steps` keeps those from the first to the last, both included.

    Raises: OSError where there is nothing to read, ValueError where it holds no loss.
    """
    source = _source(path)
    train, validation = tabulate(source.rows)
    if LOSS not in train.values:
        raise ValueError(
            f"{source.path} holds no column {LOSS}; it has {', '.join(train.values) or 'no values'}"
        )
    return Run(
        name=path.name,
        path=str(path),
        steps=train.steps,
        values=train.values,
        times=train.times,
        val_steps=validation.steps,
        validation=validation.values,
        complete=source.complete,
        notes=[*source.notes, *train.notes],
    )


def _source(path: Path) -> Rows:
    if path.is_file():
        return read_csv(path)
    found = sorted(path.glob("logs/version_*/metrics.csv"), key=lambda file: int(file.parent.name[8:]))
    if not found:
        raise FileNotFoundError(f"no log found at {path}: looked for logs/version_*/metrics.csv")
    return joined([read_csv(file) for file in found])
