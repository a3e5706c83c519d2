"""What every reader of a file hands on: rows of named numbers, in the order they were written."""

from dataclasses import dataclass, field
from datetime import datetime
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


def number(value: object) -> float | None:
    """A cell's number; None where it is empty or no number. "nan" and "inf" are numbers."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def moment(value: object) -> float | None:
    """Unix seconds of an ISO date, as some trainers write their time."""
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except ValueError:
        return None
