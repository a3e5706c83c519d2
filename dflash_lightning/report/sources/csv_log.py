"""Reads Lightning's metrics.csv, also of a run that was killed while writing it."""

import csv
from pathlib import Path

from dflash_lightning.report.sources.rows import Row, Rows, number


def read_csv(path: Path) -> Rows:
    """Every whole line; a last line without its end is left out and noted, as its last number may be cut."""
    text = path.read_text(errors="replace")
    complete = not text or text.endswith("\n")
    lines = text.splitlines() if complete else text.splitlines()[:-1]
    notes = [] if complete else [f"{path.name} breaks off in its last line, which is left out"]
    names, *body = list(csv.reader(lines)) or [[]]
    rows: list[Row] = []
    for line_number, cells in enumerate(body, start=2):
        if len(cells) != len(names):
            notes.append(
                f"{path.name} line {line_number}: {len(cells)} cells instead of {len(names)}, left out"
            )
            continue
        values = ((name, number(cell)) for name, cell in zip(names, cells, strict=True))
        rows.append({name: value for name, value in values if value is not None})
    return Rows(path=path, rows=rows, complete=complete, notes=notes)
