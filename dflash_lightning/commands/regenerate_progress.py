"""How far `regenerate` is: a moving line in a terminal, a line a minute in a log file.

in    rows and tokens as they are done
out   rows/s, tokens/s and the time left; rows of an earlier run count as done, not as speed
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

EVERY_S = 60.0


@dataclass
class Meter:
    """Counts; `shown` is called after each row and each step of tokens."""

    bar: Any = None
    """rich's Progress with one task, or None for lines."""
    count_rows_tokens: bool = False
    """Tokens are known once a row is done; else they come step by step."""
    _started: float = field(default_factory=time.monotonic)
    _told: float = field(default_factory=time.monotonic)
    _first: int | None = None
    _done: int = 0
    _total: int = 0
    _tokens: int = 0

    def rows(self, done: int, total: int, tokens: int) -> None:
        """The first call says what an earlier run has done, and starts the clock."""
        if self._first is None:
            self._first, self._started = done, time.monotonic()
        self._done, self._total = done, total
        self._tokens += tokens if self.count_rows_tokens else 0
        self._show()

    def tokens(self, count: int) -> None:
        self._tokens += count
        self._show()

    def speed(self, seconds: float) -> str:
        rows = self._done - (self._first or 0)
        per_s = rows / max(seconds, 1e-9)
        left = (
            f", {_clock((self._total - self._done) / per_s)} left"
            if rows and self._done < self._total
            else ""
        )
        return f"{per_s:.2f} rows/s, {self._tokens / max(seconds, 1e-9):,.0f} tokens/s{left}"

    def summary(self, seconds: float) -> str:
        return f"{self._done - (self._first or 0):,} rows in {_clock(seconds)}, {self.speed(seconds)}"

    def _show(self) -> None:
        now = time.monotonic()
        text = self.speed(now - self._started)
        if self.bar is not None:
            self.bar.update(0, completed=self._done, total=self._total, text=text)
        elif now - self._told >= EVERY_S:
            self._told = now
            print(f"{self._done:,} of {self._total:,} rows, {text}", file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    """3725 -> 1:02:05."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


@contextmanager
def progress_meter() -> Iterator[Meter]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Meter()
        return
    columns = (TextColumn("answering"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[text]}"))
    with Progress(*columns, console=console, transient=True) as bar:
        bar.add_task("", total=None, text="")
        yield Meter(bar)
