"""Work spread over processes, results in the order of the work.

in    a function that can be pickled, an iterator of work
out   an iterator of results
law   the number of processes changes the speed only; at most two pieces of work per process are in memory
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import Any, TypeVar

W = TypeVar("W")
R = TypeVar("R")

_function: Callable[[Any], Any]  # of a worker process: sent once, not with each piece of work


def ordered_map(function: Callable[[W], R], work: Iterable[W], *, workers: int) -> Iterator[R]:
    """`map(function, work)` in `workers` processes; in this one if there is but one.

    Processes are spawned, never forked: a forked tokenizer whose threads held a lock waits for ever.
    """
    if workers <= 1:
        yield from map(function, work)
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start, (function,))
    todo, running = iter(work), deque[Future[R]]()
    try:
        running.extend(pool.submit(_call, piece) for piece in islice(todo, 2 * workers))
        while running:
            yield running.popleft().result()
            running.extend(pool.submit(_call, piece) for piece in islice(todo, 1))
    finally:
        pool.shutdown(cancel_futures=True)


def _start(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent ends the workers
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent cannot end its workers, and they would wait for work for ever."""
    if parent := parent_process():
        wait([parent.sentinel])
        os._exit(1)


def _call(piece: Any) -> Any:
    return _function(piece)
