"""Text for people: aligned columns, and numbers as one says them.

in    rows of cells
out   lines of equal columns
"""

from collections.abc import Sequence

_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def columns(rows: Sequence[Sequence[str]], *, left: int = 0) -> list[str]:
    """Cells under each other: the first `left` columns begin at the left, the others end at the right."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def percent(share: float, digits: int = 1) -> str:
    return f"{share:.{digits}%}"


def size(num_bytes: int) -> str:
    """Three digits and a decimal unit: 1.46 GB."""
    for unit, scale in _UNITS:
        if num_bytes >= scale:
            value = num_bytes / scale
            return f"{value:.{max(0, 3 - len(str(int(value))))}f} {unit}"
    return f"{num_bytes} B"


def plural(count: int, word: str) -> str:
    """1 batch, 2 batches, 3 ranks, 4 strategies."""
    many = f"{word[:-1]}ies" if word.endswith("y") else f"{word}es" if word.endswith("ch") else f"{word}s"
    return f"{count:,} {word if count == 1 else many}"
