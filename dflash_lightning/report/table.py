"""Rows of a log -> arrays over steps.

in    rows in the order they were written, each with train/step
out   steps, values, times; the same for validation
law   one entry per step. Of a step written twice with other steps between (a resume), the later wins;
      lines of one step in a row are single batches, and their mean is taken
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dflash_lightning.report.run import LOSS, FloatArray
from dflash_lightning.report.sources.rows import Row

STEP = "train/step"
TIME = "time"
HOUSEKEEPING = {STEP, TIME, "step", "trainer/global_step", "epoch", "_step", "_runtime"}
SINGLE = {"seq_len", "bucket"}
"""A row with one of these is one batch, not a window."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Values by step."""

    steps: FloatArray
    values: Mapping[str, FloatArray]
    times: FloatArray
    non_finite: list[int] = field(default_factory=list)
    """Steps whose loss or gradient norm was written, but is not a number or infinite."""
    notes: list[str] = field(default_factory=list)


def tabulate(rows: Sequence[Row]) -> tuple[Table, Table]:
    """Training values and validation values (names `val/...`), each by step."""
    return _table(rows, validation=False), _table(rows, validation=True)


def _table(rows: Iterable[Row], *, validation: bool) -> Table:
    merged: dict[float, list[Row]] = {}
    last, repeated = None, 0
    for row in rows:
        values = _part(row, validation)
        if STEP not in row or not values:
            continue
        step = row[STEP]
        if step in merged and (last != step or not SINGLE & values.keys()):
            repeated += any(name in earlier for earlier in merged[step] for name in values)
            values = {name: value for earlier in merged[step] for name, value in earlier.items()} | values
            merged[step] = []
        merged.setdefault(step, []).append(values | ({TIME: row[TIME]} if TIME in row else {}))
        last = step
    return _arrays(dict(sorted(merged.items())), repeated)


def _part(row: Row, validation: bool) -> Row:
    kept = row.keys() - HOUSEKEEPING
    if validation:
        return {name: row[name] for name in kept if name.startswith("val/")}
    return {name: row[name] for name in kept if not name.startswith(("val/", "test/"))}


def _arrays(merged: Mapping[float, Sequence[Row]], repeated: int) -> Table:
    names = sorted({name for group in merged.values() for row in group for name in row} - {TIME})
    columns = {
        name: np.array([_mean(group, name) for group in merged.values()], np.float64)
        for name in (*names, TIME)
    }
    bad = [
        int(step)
        for step, group in merged.items()
        if any(not np.isfinite(row.get(name, 0.0)) for row in group for name in (LOSS, "train/grad_norm"))
    ]
    note = f"{repeated} steps were logged twice, as after a resume: the later values are kept"
    return Table(
        steps=np.array(list(merged), np.float64),
        times=columns.pop(TIME),
        values=columns,
        non_finite=bad,
        notes=[note] if repeated else [],
    )


def _mean(group: Sequence[Row], name: str) -> float:
    values = [row[name] for row in group if name in row]
    return sum(values) / len(values) if values else np.nan
