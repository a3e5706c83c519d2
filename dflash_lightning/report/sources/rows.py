"""What every reader of a file hands on: rows of named numbers, in the order they were written."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

Row = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """One file's content."""

    path: Path
    rows: list[Row]
    """name -> value; names without a value in that row are absent, NaN and infinities are kept."""
    complete: bool = True
    """False where the file breaks off."""
    notes: list[str] = field(default_factory=list)


def number(text: object) -> float | None:
    """A cell's number; None where it is empty or no number. "nan" and "inf" are numbers."""
    if isinstance(text, bool) or not isinstance(text, str | int | float) or text == "":
        return None
    try:
        return float(text)
    except ValueError:
        return None


def joined(parts: Sequence[Rows]) -> Rows:
    """Several files of one resumed run, in order, as one."""
    notes = [note for part in parts for note in part.notes]
    if len(parts) > 1:
        notes.insert(
            0, f"joined {len(parts)} logs of one run: " + ", ".join(part.path.parent.name for part in parts)
        )
    return Rows(
        path=parts[-1].path,
        rows=[row for part in parts for row in part.rows],
        complete=parts[-1].complete,
        notes=notes,
    )
