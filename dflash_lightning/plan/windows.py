"""Stage 4: the plan from a cursor on -> windows, and who runs what in each.

in    Plan, cursor, world size, accumulation
out   windows: the accumulate x world batches behind one optimizer step, dealt to the ranks
law   every rank takes equally many micro-steps; the windows from a cursor on hold exactly the samples that
      the plan has left, each once, whatever worlds ran before (tail "drop" loses fewer than `world` batches)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, overload

import numpy as np

from dflash_lightning.plan import rng
from dflash_lightning.plan.buckets import assign_buckets
from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan.deal import FloatArray, batch_cost, deal
from dflash_lightning.plan.epoch import Plan
from dflash_lightning.plan.measure import row_lengths
from dflash_lightning.plan.packing import block_positions
from dflash_lightning.plan.samples import IntArray, Integers, Samples
from dflash_lightning.plan.tail import split_tail

Tail = Literal["split", "drop"]


@dataclass(frozen=True, eq=False)
class RankBatch:
    """What one rank runs in one micro-step."""

    sample_ids: IntArray
    """A negative one is a ghost: row ~id, without loss, so that no rank lacks a turn."""
    bucket: int
    padded_length: int
    """Tokens to which every row is padded; a longer row is cut to it (oversize = truncate)."""


@dataclass(frozen=True, eq=False)
class Window:
    """One optimizer step. When it is finished the cursor moves from `start` to `stop`."""

    start: int
    stop: int
    batches: tuple[tuple[RankBatch, ...], ...]
    """batches[m][r] is micro-step m of rank r."""


def require_ranks_fit(num_samples: int, world: int) -> None:
    """Raises ValueError when some rank would never see a sample."""
    if num_samples < world:
        raise ValueError(
            f"{num_samples} samples cannot feed {world} ranks: fewer samples than ranks; "
            "use more data, or at most one device per sample"
        )


def as_ghost(window: Window) -> Window:
    """The same rows without loss, for a rank that has none of its own."""
    batches = [[replace(batch, sample_ids=~batch.sample_ids) for batch in ranks] for ranks in window.batches]
    return replace(window, batches=tuple(map(tuple, batches)))


def windows_in(num_batches: int, *, world: int, accumulate: int, tail: Tail) -> int:
    """Optimizer steps that so many batches make. Raises ValueError for a window of no batches."""
    if accumulate < 1:
        raise ValueError(
            "trainer.accumulate_grad_batches counts the micro-batches of an optimizer step on each rank: at "
            f"least 1, got {accumulate}"
        )
    full, rest = divmod(num_batches, world * accumulate)
    return full + (rest >= (world if tail == "drop" else 1))


def count_windows(plan: Plan, cursor: int, *, world: int, accumulate: int, tail: Tail) -> int:
    """Optimizer steps left from the cursor to the end of the plan."""
    return windows_in(plan.num_batches - cursor, world=world, accumulate=accumulate, tail=tail)


def lost_to_tail(plan: Plan, cursor: int, *, world: int, tail: Tail) -> IntArray:
    """Ids of the samples that a dropped tail leaves out when the plan runs to its end from `cursor`."""
    lost = (plan.num_batches - cursor) % world if tail == "drop" else 0
    return plan.sample_ids[plan.offsets[plan.num_batches - lost] :]


def cut_windows(
    plan: Plan, samples: Samples, config: PlanConfig, cursor: int, *, world: int, accumulate: int
) -> "Windows":
    """All windows from the cursor to the end of the plan. Each is made when asked for, so a resume is a jump.

    Raises: ValueError for a cursor outside the plan, and for an epoch that a dropped tail would lose whole.
    """
    if not 0 <= cursor <= plan.num_batches:
        raise ValueError(
            f"cursor {cursor} lies outside the plan, which has {plan.num_batches} batches: "
            "the position belongs to another plan"
        )
    if config.tail == "drop" and plan.num_batches < world:
        raise ValueError(
            f"plan.tail drop would lose the whole epoch: {plan.num_batches} batches for {world} ranks; "
            "set plan.tail to split"
        )
    count = count_windows(plan, cursor, world=world, accumulate=accumulate, tail=config.tail)
    starts = range(cursor, plan.num_batches, world * accumulate)[:count]
    return Windows(plan, samples, config, world, accumulate, starts)


@dataclass(frozen=True, eq=False)
class Windows(Sequence[Window]):
    """The windows that begin at `starts`, made on demand. A slice is a view of the same plan."""

    plan: Plan
    samples: Samples
    config: PlanConfig
    world: int
    accumulate: int
    starts: range

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> Window: ...
    @overload
    def __getitem__(self, index: slice) -> "Windows": ...
    def __getitem__(self, index: int | slice) -> "Window | Windows":
        if isinstance(index, slice):
            return replace(self, starts=self.starts[index])
        start = self.starts[index]
        batches, cost = self._batches(start)
        window_key = rng.key(self.plan.seed, self.plan.epoch, "window", start)
        turns = deal(cost, world=self.world, key=window_key).tolist()
        dealt = tuple(tuple(batches[i] for i in turn) for turn in turns)
        return Window(start, self._stop(start), dealt)

    def _stop(self, start: int) -> int:
        """A rest too small to give every rank a batch is finished with the window before it."""
        stop, end = start + self.world * self.accumulate, self.plan.num_batches
        lost = self.config.tail == "drop" and end - stop < self.world
        return end if lost else min(stop, end)

    def _batches(self, start: int) -> tuple[list[RankBatch], FloatArray]:
        """The window's batches in plan order, their number a multiple of world; and what each costs."""
        left = self.plan.num_batches - start
        if left >= self.world * self.accumulate:
            return self._whole(start, start + self.world * self.accumulate)
        if self.config.tail == "drop":
            return self._whole(start, start + left // self.world * self.world)
        return self._split(start)

    def _whole(self, start: int, stop: int) -> tuple[list[RankBatch], FloatArray]:
        plan, here = self.plan, slice(start, stop)
        batches = [
            RankBatch(plan.batch(start + i), bucket, padded_length)
            for i, (bucket, padded_length) in enumerate(
                zip(plan.bucket[here].tolist(), plan.padded_length[here].tolist(), strict=True)
            )
        ]
        rows = np.diff(plan.offsets[start : stop + 1])
        return batches, batch_cost(rows, plan.padded_length[here], plan.block_tokens[here], self.config)

    def _split(self, start: int) -> tuple[list[RankBatch], FloatArray]:
        left = [self.plan.batch(i) for i in range(start, self.plan.num_batches)]
        pieces = split_tail(left, self._cost, world=self.world, accumulate=self.accumulate)
        return [self._piece(ids) for _, ids in pieces], np.array([self._cost(ids) for _, ids in pieces])

    def _piece(self, ids: IntArray) -> RankBatch:
        longest = self._padded(ids).max(keepdims=True)
        return RankBatch(ids, int(assign_buckets(longest, self.plan.edges)[0]), int(longest[0]))

    def _padded(self, ids: IntArray) -> Integers:
        """[n] ids, ghosts among them -> [n] padded lengths of those rows."""
        lengths = self.samples.lengths[np.where(ids < 0, ~ids, ids)]
        return row_lengths(lengths, self.plan.edges, self.config)

    def _cost(self, ids: IntArray) -> float:
        padded = self._padded(ids)
        supervised = np.minimum(self.samples.supervised[np.where(ids < 0, ~ids, ids)], padded)
        blocks = block_positions(
            supervised, num_anchors=self.plan.num_anchors, block_size=self.plan.block_size
        )
        one = np.array([len(ids)]), padded.max(keepdims=True), blocks.sum(keepdims=True)
        return float(batch_cost(*one, self.config)[0])
