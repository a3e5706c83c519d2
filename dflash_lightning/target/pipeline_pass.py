"""One pass of the pipeline over an epoch's batches: its threads, from start to end.

law   threads hold the board, never the pass, so that a pass that is dropped can be collected and closed; they
      end with the source, with an error, or when the pass is closed, whichever comes first
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dflash_lightning.target.pipeline_board import Board
from dflash_lightning.target.pipeline_queues import BatchCost, Entry

Worker = Callable[[Any], Any]
"""A batch -> its hidden states, finished: a target's forward pass, or a read from disk."""

CLOSE_SECONDS = 10.0
"""How long closing waits for the threads, each of which first ends the batch it is at."""

_log = logging.getLogger(__name__)


class Pass:
    """Iterates over (batch, states). A context: leaving it ends the threads."""

    def __init__(
        self,
        board: Board,
        source: Iterable[Any],
        windows: Sequence[int],
        *,
        workers: Sequence[Worker],
        names: Sequence[str],
        cost: Callable[[Any], BatchCost],
    ) -> None:
        self._board = board
        self._source = source
        self._windows = windows
        self._cost = cost
        self._targets = list(zip(workers, names, strict=True))
        self._threads: list[threading.Thread] = []
        self.place = 0
        """Micro-step of the batch delivered last, in its window by the plan."""

    def __enter__(self) -> "Pass":
        """Starts the threads. The source's iterator is made here, in the calling thread."""
        board, numbered = self._board, _in_windows(iter(self._source), self._windows)
        self._thread("feed", _feed, board, numbered, self._cost)
        for device, (worker, name) in enumerate(self._targets):
            self._thread(name, _work, board, device, name, worker)
        return self

    def _thread(self, name: str, run: Callable[..., None], board: Board, *arguments: Any) -> None:
        thread = threading.Thread(
            target=_reporting, args=(run, board, *arguments), name=f"prefetch {name}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def __iter__(self) -> "Pass":
        return self

    def __next__(self) -> tuple[Any, Any]:
        """The next batch with its states. Raises what any thread raised."""
        entry = self._board.deliver()
        if entry is None:
            raise StopIteration
        pair, self.place = (entry.batch, entry.states), entry.place
        entry.batch = entry.states = None  # from here on only training keeps them alive
        return pair

    def close(self) -> None:
        """End the threads. One that does not end (its source blocks for ever) is left behind and named."""
        self._board.close()
        deadline = time.monotonic() + CLOSE_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():  # the collector may run in any thread
                thread.join(max(0.0, deadline - time.monotonic()))
        left = [thread.name for thread in self._threads if thread.is_alive()]
        if left:
            _log.warning("left behind after %.0f s, still at a batch: %s", CLOSE_SECONDS, ", ".join(left))
        self._threads = []

    def __exit__(self, *_: object) -> None:
        self.close()


def _reporting(run: Callable[..., None], board: Board, *arguments: Any) -> None:
    try:
        run(board, *arguments)
    except BaseException as error:  # every way to die: training must hear of it
        if isinstance(error, StopIteration):  # raised on in an iterator, it would pass for the end
            wrapped = RuntimeError("a thread of the prefetch pipeline raised StopIteration")
            wrapped.__cause__ = error
            error = wrapped
        error.add_note(f"(in thread {threading.current_thread().name!r})")
        board.fail(error)


def _feed(board: Board, numbered: Iterator[tuple[int, int, Any]], cost: Callable[[Any], BatchCost]) -> None:
    begun = time.perf_counter()
    for window, place, batch in numbered:
        board.source_took(time.perf_counter() - begun)
        if not board.admit(batch, cost(batch), window=window, place=place):
            return
        begun = time.perf_counter()
    board.source_ended()


def _work(board: Board, device: int, name: str, worker: Worker) -> None:
    while (entry := board.take(device)) is not None:
        try:
            states = worker(entry.batch)
        except BaseException as error:
            error.add_note(_whereabouts(entry, name))
            raise
        board.finish(entry, states)
        del entry, states  # an idle worker must not keep hidden states alive


def _whereabouts(entry: Entry, name: str) -> str:
    cost = entry.cost
    return f"{name}, batch {entry.number} of this pass, bucket {cost.bucket}, {cost.tokens} padded tokens"


def _in_windows(batches: Iterator[Any], windows: Sequence[int]) -> Iterator[tuple[int, int, Any]]:
    """Each batch with its window and its place there. Raises ValueError where the lengths do not match."""
    for window, size in enumerate(windows):
        for place in range(size):
            try:
                yield window, place, next(batches)
            except StopIteration:
                raise ValueError(
                    f"the source of batches ended in optimizer window {window} of {len(windows)}: it must "
                    f"give {sum(windows)} batches"
                ) from None
    if next(batches, batches) is not batches:
        raise ValueError(f"the source gives more than the {sum(windows)} batches of its optimizer windows")
