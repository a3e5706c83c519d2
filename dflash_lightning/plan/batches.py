"""Packings that keep every bucket to itself.

in    padded lengths [n] and block positions [n] of one bucket's samples, in hashed order; the limits
out   Packed: the samples in the order they are taken, and the rows of each batch of the queue
law   as packing.py says
"""

from dataclasses import dataclass

import numpy as np

from dflash_lightning.plan.cut import Limits, cut_in_order, cut_sorted
from dflash_lightning.plan.packing import BucketPacking, Packed, ragged_indices
from dflash_lightning.plan.rng import GOLDEN, hash_ids
from dflash_lightning.plan.samples import IntArray, Integers


@dataclass(frozen=True, kw_only=True)
class PoolSorted(BucketPacking):
    """Sort pools of shuffled samples by length, cut them, and queue the batches evenly mixed by length."""

    pool_batches: int = 64
    """Batches in a pool: more of them pad less, fewer mix batch mates better from epoch to epoch."""

    def __post_init__(self) -> None:
        if self.pool_batches < 1:
            raise ValueError(
                f"pool_batches must be at least 1, got {self.pool_batches}; for batches without sorting "
                "set packing to RandomOrder"
            )

    def pack(self, padded: Integers, block_tokens: IntArray, limits: Limits, *, key: int) -> Packed:
        pool_rows = self.pool_batches * limits.typical_rows(padded, block_tokens)
        turn = sort_pools(padded, pool_rows)
        longest_first = padded[turn]
        starts = cut_sorted(longest_first, block_tokens[turn], pool_rows, limits)
        rows = np.diff(starts, append=len(padded))
        queue = golden_walk(longest_first[starts], key=key)
        return Packed(turn[ragged_indices(starts[queue], rows[queue])], rows[queue])


@dataclass(frozen=True, kw_only=True)
class RandomOrder(BucketPacking):
    """The rule of earlier documented runs: take shuffled samples, close a batch when the next is too much."""

    def pack(self, padded: Integers, block_tokens: IntArray, limits: Limits, *, key: int) -> Packed:
        starts = cut_in_order(padded, block_tokens, limits)
        return Packed(np.arange(len(padded)), np.diff(starts, append=len(padded)))


def sort_pools(padded: Integers, pool_rows: int) -> IntArray:
    """[n] -> [n] positions pool by pool, the longest of each pool first; equal ones keep their order."""
    pool_rows = min(pool_rows, len(padded))
    num_pools = -(-len(padded) // pool_rows)
    longest = int(padded.max())
    # What fills up the last pool is as short as can be and comes last, so the sort leaves it at the end.
    shortness = np.full(num_pools * pool_rows, longest, np.min_scalar_type(longest))
    np.subtract(longest, padded, out=shortness[: len(padded)], casting="unsafe")
    pools = shortness.reshape(num_pools, pool_rows)  # sixteen bits sort four times as fast as more of them
    turn: IntArray = np.argsort(pools, axis=1, kind="stable")
    turn += np.arange(num_pools)[:, None] * pool_rows
    return turn.reshape(-1)[: len(padded)]


def golden_walk(padded: Integers, *, key: int) -> IntArray:
    """[b] padded lengths -> [b] the order in which any stretch holds short and long ones evenly.

    Step j of the walk visits the length rank that j * golden ratio (mod 1, from a hashed start) has among all
    steps. Without it a sorted queue would run from long to short once per pool.
    """
    steps = np.arange(len(padded)).astype(np.uint64)
    steps *= np.uint64(GOLDEN)
    steps += hash_ids(key, np.array([len(padded)]))
    rank_of_step = np.argsort(np.argsort(steps))
    return np.argsort(padded, kind="stable")[rank_of_step]
