"""Where a sequence of samples is cut into batches.

in    padded lengths [n] and block positions [n] in the order the samples are taken; the limits of a batch
out   [batches] where each batch begins
law   no batch exceeds a limit, except that a sample whose block positions alone are too many still gets a
      batch of one; a batch ends only where one sample more would exceed a limit (or its pool ends)

A batch costs the target rows x padded length, but the drafter rows x anchors x block size: short samples fit
the first budget in numbers that overrun the second (spec/batching.md section 5). Hence both.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dflash_lightning.plan.samples import IntArray, Integers

Numbers = npt.NDArray[np.number]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one batch may hold at most. The limits are hereditary: part of a legal batch is a legal batch."""

    rows: int
    tokens: int
    """Rows times the cost of the longest row."""
    block_tokens: int
    """Sum of the rows' block positions."""
    quadratic: float | None = None
    """Padded length at which a token costs twice; None: every token costs one."""

    def row_cost(self, padded: Integers) -> Numbers:
        """[n] padded lengths -> [n] tokens that one row of such a batch costs: L or L + L * L / quadratic."""
        return padded if self.quadratic is None else padded + padded * (padded / self.quadratic)

    def most_rows(self, padded: Integers) -> IntArray:
        """[n] padded lengths -> [n] rows of the largest batch whose longest row is that long."""
        by_tokens = np.floor_divide(np.int64(self.tokens), self.row_cost(padded)).astype(np.int64, copy=False)
        return np.minimum(by_tokens, self.rows, out=by_tokens)

    def typical_rows(self, padded: Integers, block_tokens: IntArray) -> int:
        """Rows of a batch whose samples are average ones."""
        by_tokens = len(padded) * self.tokens // self.row_cost(padded).sum().item()
        by_blocks = len(padded) * self.block_tokens // max(1, int(block_tokens.sum()))
        return max(1, min(self.rows, int(by_tokens), by_blocks))


def cut_sorted(padded: Integers, block_tokens: IntArray, pool_rows: int, limits: Limits) -> IntArray:
    """Pools of `pool_rows` samples, longest first in each -> [batches] starts.

    A batch's first sample sets its padded length, so that every stop is known without a loop.
    """
    at = np.arange(len(padded))
    stop = limits.most_rows(padded)
    stop += at
    np.minimum(stop, (at // pool_rows + 1) * pool_rows, out=stop)
    np.minimum(stop, _stop_by_blocks(block_tokens, limits), out=stop)
    np.maximum(stop, at + 1, out=stop)  # one sample over the block limit is a batch of its own
    return np.fromiter(_jumps(stop), np.int64)


def cut_in_order(padded: Integers, block_tokens: IntArray, limits: Limits) -> IntArray:
    """Samples in any order, each batch closed when the next one is too much -> [batches] starts."""
    most_rows, stop_by_blocks = limits.most_rows(padded), _stop_by_blocks(block_tokens, limits)
    return np.fromiter(_greedy_starts(most_rows, stop_by_blocks), np.int64)


def _stop_by_blocks(block_tokens: IntArray, limits: Limits) -> IntArray:
    """[n] where a batch that begins at each sample ends for the sake of its block positions."""
    before = np.concatenate(([0], np.cumsum(block_tokens)))
    return np.searchsorted(before, before[:-1] + limits.block_tokens, side="right") - 1


def _jumps(stop: IntArray) -> Iterator[int]:
    start = 0
    while start < len(stop):
        yield start
        start = int(stop[start])


def _greedy_starts(most_rows: IntArray, stop_by_blocks: IntArray) -> Iterator[int]:
    """A batch ends at the first row whose turn in it is above what any of its rows allows."""
    turn = np.arange(1, min(int(most_rows.max(initial=0)), len(most_rows)) + 1)
    start = 0
    while start < len(most_rows):
        yield start
        allowed = np.minimum.accumulate(most_rows[start : start + most_rows[start]])
        fit = int(np.searchsorted(turn[: len(allowed)] - allowed, 1))  # rising: turns grow, allowances fall
        start = max(start + 1, min(start + fit, int(stop_by_blocks[start])))
