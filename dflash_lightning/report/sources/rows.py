"""What every reader of a file hands on: rows of named numbers, in the order they were written."""

import math
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

Row = dict[str, float]
LARGEST = 3.4e38
"""What fp32 can hold: a loss or a norm beyond it has overflowed, whatever was written."""
LAST_STEP = 2.0**53


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
    """A cell's number; None where it is empty or no number. "nan" and "inf" are numbers, and what fp32 cannot
    hold is infinite."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    except OverflowError:  # of a whole number
        found = math.inf if int(value) > 0 else -math.inf
    return math.copysign(math.inf, found) if abs(found) > LARGEST else found


def is_step(value: float | None) -> bool:
    """A number that can count optimizer steps."""
    return value is not None and abs(value) < LAST_STEP


def lines_of(path: Path) -> tuple[list[str], bool]:
    """(lines, whether the last one has its end). What is no text is replaced: the rest can be read."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    complete = not text or text.endswith("\n")
    return (text.removesuffix("\n").split("\n") if text else []), complete


def moment(value: object) -> float | None:
    """Unix seconds of an ISO date, as some trainers write their time."""
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except ValueError:
        return None
