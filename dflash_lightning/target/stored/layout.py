"""Which sample lies where: lengths -> shards and batches. Pure: NumPy only.

in    lengths [n] in tokens, bytes of one token, the most bytes of a shard
out   Layout: the samples of every shard, and shard and offset of every sample
law   every sample lies in exactly one shard, no two overlap, and a shard exceeds its limit only where one
      sample alone does
"""

from dataclasses import dataclass

import numpy as np

from dflash_lightning.plan.cut import Limits, cut_sorted
from dflash_lightning.plan.samples import IntArray


@dataclass(frozen=True, eq=False)
class Layout:
    """Samples longest first, so that batches have next to no padding and memory runs out at once or never."""

    lengths: IntArray
    """[n] tokens of each sample."""
    order: IntArray
    """[n] sample numbers, longest first."""
    starts: IntArray
    """[shards + 1] where in `order` each shard begins, and n."""

    @property
    def num_shards(self) -> int:
        return len(self.starts) - 1

    def samples(self, shard: int) -> IntArray:
        """Sample numbers of a shard, in the order in which they lie in it."""
        return self.order[self.starts[shard] : self.starts[shard + 1]]

    def tokens(self, shard: int) -> int:
        return int(self.lengths[self.samples(shard)].sum())

    def places(self) -> tuple[IntArray, IntArray]:
        """([n] shard of each sample, [n] tokens that lie before it in its shard)."""
        per_shard = np.diff(self.starts)
        lengths = self.lengths[self.order]
        before = np.cumsum(lengths) - lengths
        shard, offset = np.empty_like(self.order), np.empty_like(self.order)
        shard[self.order] = np.repeat(np.arange(self.num_shards), per_shard)
        offset[self.order] = before - np.repeat(before[self.starts[:-1]], per_shard)
        return shard, offset


def plan_layout(lengths: IntArray, *, token_bytes: int, shard_bytes: int) -> Layout:
    """Longest first, cut where the next sample would be too much. `lengths` has at least one sample."""
    order = np.argsort(-lengths, kind="stable")
    stops = np.cumsum(lengths[order])
    limit = shard_bytes // token_bytes
    starts = [0]
    while starts[-1] < len(order):
        before = stops[starts[-1] - 1] if starts[-1] else 0
        stop = int(np.searchsorted(stops, before + limit, side="right"))
        starts.append(max(stop, starts[-1] + 1))  # one sample over the limit is a shard of its own
    return Layout(lengths, order, np.array(starts))


def cut_batches(lengths: IntArray, *, max_tokens: int) -> list[slice]:
    """[n] lengths, longest first -> batches of rows x longest row <= max_tokens; a longer row runs alone."""
    limits = Limits(rows=len(lengths), tokens=max_tokens, block_tokens=1)
    starts = cut_sorted(lengths, np.zeros_like(lengths), len(lengths), limits)
    return [slice(*pair) for pair in zip(starts.tolist(), [*starts[1:].tolist(), len(lengths)], strict=True)]
