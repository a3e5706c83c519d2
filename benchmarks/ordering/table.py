"""Aligned tables, in Markdown so that they can be pasted into a README."""

from collections.abc import Sequence

import numpy as np


def beside(measured: float, noted: float | None) -> str:
    """`measured (noted)`, with as many digits as the note has."""
    return number(measured) if noted is None else f"{number(measured, noted)} ({number(noted, noted)})"


def number(value: float, like: float = 0.001) -> str:
    """Counts whole, shares and factors with three digits behind the point, or as many more as `like` has."""
    if isinstance(like, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    decimals = len(str(like).partition(".")[2])
    return f"{value:.{max(decimals, 3 if abs(like) < 10 else 2)}f}"


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(str(row[i])) for row in [headings, *rows]) for i in range(len(headings))]
    print(f"\n{title}\n")
    for row in [headings, ["-" * width for width in widths], *rows]:
        print(
            "| " + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        )


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation, NaN for a single value."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
