"""Rows of a log -> arrays over steps.

in    rows in the order they were written, each with a step
out   steps, values, times, and the same for validation
law   one row per step: what was written later wins, as a resumed run repeats the steps after its checkpoint
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dflash_lightning.report.run import FloatArray
from dflash_lightning.report.sources.rows import Row

STEP = "train/step"
LOGGER_STEPS = ("step", "trainer/global_step", "_step")
"""What loggers count beside train/step; the first that a row has is used."""
TIMES = ("time", "_timestamp", "timestamp")
HOUSEKEEPING = {STEP, "epoch", "_runtime", "created_at", *LOGGER_STEPS, *TIMES}


@dataclass(frozen=True, kw_only=True)
class Table:
    """Values by step."""

    steps: FloatArray
    values: Mapping[str, FloatArray]
    times: FloatArray
    notes: list[str] = field(default_factory=list)


def tabulate(rows: Sequence[Row]) -> tuple[Table, Table]:
    """Training values and validation values (names `val/...`), each by step."""
    offset = _logger_offset(rows)
    placed = [(step, row) for row in rows if (step := _step(row, offset)) is not None]
    return _table(placed, validation=False), _table(placed, validation=True)


def _logger_offset(rows: Sequence[Row]) -> float:
    """How far train/step runs before the logger's own step: 1 for Lightning, which counts from 0."""
    gaps = [row[STEP] - row[name] for row in rows for name in LOGGER_STEPS[:2] if STEP in row and name in row]
    return float(np.median(gaps)) if gaps else 0.0


def _step(row: Row, offset: float) -> float | None:
    if STEP in row:
        return row[STEP]
    return next((row[name] + offset for name in LOGGER_STEPS if name in row), None)


def _table(placed: Sequence[tuple[float, Row]], *, validation: bool) -> Table:
    merged: dict[float, Row] = {}
    repeated = 0
    for step, row in placed:
        values = {
            name: value
            for name, value in row.items()
            if name not in HOUSEKEEPING and name.startswith("val/") == validation
        }
        if not values:
            continue
        earlier = merged.get(step, {})
        repeated += any(name in earlier for name in values)
        merged[step] = earlier | values | {name: row[name] for name in TIMES if name in row}
    steps = sorted(merged)
    names = sorted({name for row in merged.values() for name in row} - set(TIMES))
    notes = [f"{repeated} steps were logged twice, as after a resume: the later values are kept"]
    return Table(
        steps=np.array(steps, np.float64),
        values={name: np.array([merged[s].get(name, np.nan) for s in steps], np.float64) for name in names},
        times=np.array([_time(merged[step]) for step in steps], np.float64),
        notes=notes if repeated else [],
    )


def _time(row: Row) -> float:
    return next((row[name] for name in TIMES if name in row), np.nan)
