"""Reads Lightning's metrics.csv, also of a run that was killed while writing it."""

import csv
from pathlib import Path

from dflash_lightning.report.sources.rows import Row, Rows, lines_of, number


def read_csv(path: Path) -> Rows:
    """Every whole line; a last line without its end is left out and noted, as its last number may be cut."""
    lines, complete = lines_of(path)
    notes = [] if complete else [f"{path.name} breaks off in its last line, which is left out"]
    names, *body = [_cells(line) for line in (lines if complete else lines[:-1])] or [[]]
    rows: list[Row] = []
    for cells in body:
        if len(cells) == len(names):
            values = ((name, number(cell)) for name, cell in zip(names, cells, strict=True))
            rows.append({name: value for name, value in values if value is not None})
    if bad := [at for at, cells in enumerate(body, start=2) if len(cells) != len(names)]:
        other = f"{len(body[bad[0] - 2])} cells instead of {len(names)}"
        notes.append(f"{path.name}: {len(bad)} lines are left out, first line {bad[0]} ({other})")
    return Rows(path=path, rows=rows, complete=complete, notes=notes)


def _cells(line: str) -> list[str]:
    """One line by itself, so that a stray quotation mark takes no other line with it."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []
