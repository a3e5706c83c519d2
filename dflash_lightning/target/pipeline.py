"""The target runs ahead of the drafter: feed thread -> one worker thread and bounded queue per device ->
training.

in    token batches in plan order, the sizes of their optimizer windows, one callable per target device
out   (batch, states) for training, in plan order or as they become ready within a window
law   each batch is delivered once; hidden states in flight stay within the budget; an error in any thread is
      raised in training's next call; leaving the pass early ends all threads
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from dflash_lightning.target.dispatch import Dispatcher, PrefetchPolicy
from dflash_lightning.target.pipeline_board import Board
from dflash_lightning.target.pipeline_counters import PipelineCounters, Tally
from dflash_lightning.target.pipeline_pass import Pass, Worker
from dflash_lightning.target.pipeline_queues import BatchCost
from dflash_lightning.target.pipeline_slow import SLOW_SECONDS, SlowWatch


class TargetPipeline:
    """The target devices of one rank. Lives as long as the run; every epoch is one pass."""

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        cost: Callable[[Any], BatchCost],
        policy: PrefetchPolicy = PrefetchPolicy(),  # noqa: B008  (frozen)
        names: Sequence[str] = (),
        slow_seconds: float = SLOW_SECONDS,
    ) -> None:
        """
        Args:
            workers: One callable per target device; each is called from a thread of its own, one batch at a
                time.
            cost: What a batch will cost, told from its shape.
            policy: Who computes what, what is delivered next, how far ahead.
            names: What to call the devices in messages; by default device 0, 1, ...
            slow_seconds: Training's wait for one batch after which the log names the culprit.

        Raises: ValueError for no worker, or a depth of 0.
        """
        if not workers:
            raise ValueError("a pipeline needs at least one worker, got none")
        self._workers = workers
        self._cost = cost
        self._names = list(names) or [f"device {i}" for i in range(len(workers))]
        self._slow_seconds = slow_seconds
        self._dispatcher = Dispatcher()
        self._tally = Tally(len(workers))
        self._policy = _ahead(policy)
        self._pass: Pass | None = None
        self._board = self._new_board()

    @property
    def policy(self) -> PrefetchPolicy:
        return self._policy

    def set_policy(self, policy: PrefetchPolicy) -> None:
        """Decide by `policy` from now on, in the middle of a pass too. Raises: ValueError for depth 0."""
        self._policy = _ahead(policy)
        self._board.set_policy(policy)

    def set_depth(self, depth: int) -> None:
        """Change the depth alone."""
        self.set_policy(replace(self._policy, depth=depth))

    def counters(self) -> PipelineCounters:
        """A snapshot; cheap, from any thread. Sums go on over passes."""
        return self._board.counters()

    @property
    def place(self) -> int | None:
        """Micro-step of the batch delivered last, in its window by the plan; None outside of a pass."""
        return None if self._pass is None else self._pass.place

    def run(self, source: Iterable[Any], windows: Sequence[int]) -> Pass:
        """A pass over `source`: enter it as a context, then iterate. A pass still open is closed.

        Args:
            source: Batches in plan order; iterated in a thread.
            windows: Micro-batches of each optimizer window, in order; their sum is the length of `source`.
        """
        self.close()
        self._board = self._new_board()
        self._pass = Pass(
            self._board, source, windows, workers=self._workers, names=self._names, cost=self._cost
        )
        return self._pass

    def close(self) -> None:
        """End the pass that is open, if any."""
        if self._pass is not None:
            self._pass.close()
            self._pass = None

    def _new_board(self) -> Board:
        slow = SlowWatch(self._slow_seconds)
        return Board(self._names, self._policy, dispatcher=self._dispatcher, tally=self._tally, slow=slow)


def _ahead(policy: PrefetchPolicy) -> PrefetchPolicy:
    if policy.depth < 1:
        raise ValueError("prefetch depth 0 means no pipeline; a pipeline's depth must be at least 1 batch")
    return policy
