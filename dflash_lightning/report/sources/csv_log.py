"""Reads Lightning's metrics.csv, also of a run that was killed while writing it."""

import csv
from pathlib import Path

from dflash_lightning.report.sources.rows import Rows, number


def read_csv(path: Path) -> Rows:
    """Every row that is there; a last line that breaks off is left out and noted."""
    text = path.read_text(errors="replace")
    lines = list(csv.reader(text.splitlines()))
    names, body = (lines[0], lines[1:]) if lines else ([], [])
    whole = text.endswith("\n") or (bool(body) and len(body[-1]) == len(names))
    notes, rows = [], []
    for line_number, cells in enumerate(body, start=2):
        if len(cells) != len(names):
            whole = whole and line_number <= len(body)
            notes.append(f"{path.name} line {line_number}: {len(cells)} of {len(names)} cells, left out")
            continue
        values = {name: number(cell) for name, cell in zip(names, cells, strict=True)}
        rows.append({name: value for name, value in values.items() if value is not None})
    if not whole:
        notes.append(f"{path.name} breaks off in its last line: the run was killed, or still writes")
    return Rows(path=path, rows=rows, complete=whole, notes=notes)
