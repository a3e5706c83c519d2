"""Stage 2: the samples of each bucket -> its queue of batches.

in    padded lengths [n] and block positions [n] of one bucket's samples, in hashed order; three limits
out   Packed: the samples in the order they are taken, and the rows of each batch of the queue
law   every sample is in exactly one batch, and no batch exceeds a limit, except that a sample whose block
      positions alone are too many still gets a batch of one

A batch costs the target rows x padded length, but the drafter rows x anchors x block size: short samples fit
the first budget in numbers that overrun the second (spec/batching.md section 5). Hence both.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dflash_lightning.plan.rng import GOLDEN, hash_ids
from dflash_lightning.plan.samples import IntArray


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one batch may hold at most."""

    rows: int
    tokens: int
    """Rows times padded length."""
    block_tokens: int
    """Sum of the rows' block positions."""


@dataclass(frozen=True, eq=False)
class Packed:
    """A queue of batches, as one ragged array."""

    turn: IntArray
    """[n] positions into the bucket's samples, batch after batch."""
    rows: IntArray
    """[batches] samples of each batch."""


class Packing(ABC):
    """How the samples of one bucket are cut into batches, and in which order its queue holds them."""

    @abstractmethod
    def pack(self, padded: IntArray, block_tokens: IntArray, limits: Limits, *, key: int) -> Packed:
        """Samples in hashed order -> the bucket's queue. `key` is the bucket's own randomness."""


@dataclass(frozen=True, kw_only=True)
class PoolSorted(Packing):
    """Sort pools of shuffled samples by length, cut them, and queue the batches evenly mixed by length."""

    pool_batches: int = 64
    """Batches in a pool: more of them pad less, fewer mix batch mates better from epoch to epoch."""

    def __post_init__(self) -> None:
        if self.pool_batches < 1:
            raise ValueError(
                f"pool_batches must be at least 1, got {self.pool_batches}; for batches without sorting "
                "set packing to RandomOrder"
            )

    def pack(self, padded: IntArray, block_tokens: IntArray, limits: Limits, *, key: int) -> Packed:
        pool_rows = self.pool_batches * _typical_rows(padded, block_tokens, limits)
        pool = np.arange(len(padded)) // pool_rows
        # One stable sort by (pool, longest first); samples of one length keep their hashed order.
        turn = np.argsort(pool * (int(padded.max()) + 1) - padded, kind="stable")
        starts = _cut_sorted(padded[turn], block_tokens[turn], pool_rows, limits)
        rows = np.diff(starts, append=len(padded))
        queue = golden_walk(padded[turn[starts]], key=key)
        return Packed(turn[ragged_indices(starts[queue], rows[queue])], rows[queue])


@dataclass(frozen=True, kw_only=True)
class RandomOrder(Packing):
    """The rule of earlier documented runs: take shuffled samples, close a batch when the next is too much."""

    def pack(self, padded: IntArray, block_tokens: IntArray, limits: Limits, *, key: int) -> Packed:
        rows = np.fromiter(_greedy_rows(padded, block_tokens, limits), np.int64)
        return Packed(np.arange(len(padded)), rows)


def _typical_rows(padded: IntArray, block_tokens: IntArray, limits: Limits) -> int:
    """Rows of a batch whose samples are average ones."""
    by_tokens = len(padded) * limits.tokens // int(padded.sum())
    by_blocks = len(padded) * limits.block_tokens // max(1, int(block_tokens.sum()))
    return max(1, min(limits.rows, by_tokens, by_blocks))


def _cut_sorted(padded: IntArray, block_tokens: IntArray, pool_rows: int, limits: Limits) -> IntArray:
    """Longest first in each pool -> [batches] starts. A batch's first sample sets its padded length."""
    at = np.arange(len(padded))
    stop = at + np.minimum(limits.rows, limits.tokens // padded)
    np.minimum(stop, (at // pool_rows + 1) * pool_rows, out=stop)
    blocks = np.concatenate(([0], np.cumsum(block_tokens)))
    np.minimum(stop, np.searchsorted(blocks, blocks[:-1] + limits.block_tokens, side="right") - 1, out=stop)
    np.maximum(stop, at + 1, out=stop)  # one sample over the block limit is a batch of its own
    return np.fromiter(_jumps(stop), np.int64)


def _jumps(stop: IntArray) -> Iterator[int]:
    start = 0
    while start < len(stop):
        yield start
        start = int(stop[start])


def _greedy_rows(padded: IntArray, block_tokens: IntArray, limits: Limits) -> Iterator[int]:
    rows = longest = blocks = 0
    for length, block in zip(_integers(padded), _integers(block_tokens), strict=True):
        longest = max(longest, length)
        blocks += block
        too_much = (rows + 1) * longest > limits.tokens or blocks > limits.block_tokens
        if rows and (too_much or rows == limits.rows):
            yield rows
            rows, longest, blocks = 0, length, block
        rows += 1
    yield rows


def _integers(values: IntArray) -> Iterator[int]:
    """Python integers, which a loop reads faster than numpy's; by chunks, because a list of them is large."""
    for start in range(0, len(values), 1 << 16):
        yield from values[start : start + (1 << 16)].tolist()


def golden_walk(padded: IntArray, *, key: int) -> IntArray:
    """[b] padded lengths -> [b] the order in which any stretch holds short and long ones evenly.

    Step j of the walk visits the length rank that j * golden ratio (mod 1, from a hashed start) has among all
    steps. Without it a sorted queue would run from long to short once per pool.
    """
    steps = np.arange(len(padded)).astype(np.uint64)
    steps *= np.uint64(GOLDEN)
    steps += hash_ids(key, np.array([len(padded)]))
    rank_of_step = np.argsort(np.argsort(steps))
    return np.argsort(padded, kind="stable")[rank_of_step]


def ragged_indices(starts: IntArray, rows: IntArray) -> IntArray:
    """Row ranges -> the indices they cover, range after range: ([4, 0], [2, 3]) -> [4, 5, 0, 1, 2]."""
    ends = np.cumsum(rows)
    indices: IntArray = np.arange(ends[-1] if len(ends) else 0)
    indices += np.repeat(starts - (ends - rows), rows)
    return indices
