"""How far a command is through its bytes: a moving bar in a terminal, a line a minute in a log file.

in    bytes done, bytes in all
out   lines or a bar on standard error
law   what an earlier run has done counts as done, not as speed
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

OnProgress = Callable[[int, int], None]
"""Called with (done, total), in bytes."""
EVERY_S = 60.0


@contextmanager
def bytes_progress(what: str) -> Iterator[OnProgress]:
    """A bar in a log file is noise, hours of silence are worse. `what` is being done, such as "writing"."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield log_lines(what)
        return
    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def log_lines(what: str, *, clock: Callable[[], float] = time.monotonic) -> OnProgress:
    """Prints a line a minute; the first call says what was done before. `clock`: seconds."""
    first: tuple[float, int] | None = None
    said = clock()

    def on_progress(done: int, total: int) -> None:
        nonlocal first, said
        now = clock()
        first = first or (now, done)
        if now - said < EVERY_S:
            return
        said, passed = now, done - first[1]
        left = f", {(total - done) * (now - first[0]) / passed / 60:,.0f} min left" if passed else ""
        print(f"{what}: {sized(done)} of {sized(total)}{left}", file=sys.stderr, flush=True)

    return on_progress


def sized(size: int) -> str:
    """Bytes for people."""
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"
