"""Stage 2: samples -> batches, and the queues in which they wait.

in    Measured: what the planner knows of each sample; the limits of a batch; seed and epoch
out   Packed: sample ids batch after batch, and the rows of each batch
law   every sample that is not left out is in exactly one batch, and no batch exceeds a limit (see cut.py)

A batch belongs to the bucket of its longest row, and waits in that bucket's queue in the order given here.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dflash_lightning.plan import rng
from dflash_lightning.plan.buckets import assign_buckets
from dflash_lightning.plan.cut import Limits
from dflash_lightning.plan.samples import IntArray, Integers


@dataclass(frozen=True, eq=False, kw_only=True)
class Measured:
    """The samples as the planner sees them."""

    edges: tuple[int, ...]
    padded: Integers
    """[n] tokens to which each sample is padded on its own: with static shapes its bucket's edge."""
    bucket: Integers
    """[n] bucket of each; -1 where a sample is left out."""
    supervised: IntArray
    num_anchors: int
    block_size: int
    static: bool
    """Whether every sample takes the block positions of a full set of anchors."""

    def members(self, bucket: int, *, seed: int, epoch: int) -> IntArray:
        """Ids of one bucket in hashed order."""
        ids = np.flatnonzero(self.bucket == bucket)
        return rng.permutation(rng.key(seed, epoch, "samples", bucket), ids)

    def everyone(self, *, seed: int, epoch: int) -> IntArray:
        """Ids of all buckets in one hashed order."""
        return rng.permutation(rng.key(seed, epoch, "samples"), np.flatnonzero(self.bucket >= 0))

    def blocks(self, ids: IntArray) -> IntArray:
        """[m] ids -> [m] block positions of those samples, at most."""
        # A truncated sample may lose supervised tokens, but never has more of them than tokens are left.
        supervised = np.minimum(self.supervised[ids], self.edges[-1])
        return block_positions(supervised, num_anchors=self.num_anchors, block_size=self.block_size)

    def charged_blocks(self, ids: IntArray) -> IntArray:
        """[m] ids -> [m] block positions that packing counts: static shapes hold the full number."""
        if self.static:
            return np.full(len(ids), self.num_anchors * self.block_size)
        return self.blocks(ids)

    def labels(self, padded_length: Integers) -> IntArray:
        """[batches] padded lengths -> [batches] the bucket of the longest row."""
        return assign_buckets(padded_length, self.edges)


@dataclass(frozen=True, eq=False)
class Packed:
    """Batches as one ragged array."""

    turn: IntArray
    """[n] which samples, batch after batch: ids, or positions into the samples that were given."""
    rows: IntArray
    """[batches] samples of each batch."""


class Packing(ABC):
    """How samples are cut into batches, and in which order the batches of a bucket wait."""

    decides_order: ClassVar[bool] = False
    """The batches already are in the order of the epoch; the plan's `order` does not apply."""

    @abstractmethod
    def pack_all(self, measured: Measured, limits: Limits, *, seed: int, epoch: int) -> Packed:
        """All samples that are not left out -> batches of sample ids."""


class BucketPacking(Packing):
    """Packs each bucket on its own, so that no batch mixes buckets."""

    @abstractmethod
    def pack(self, padded: Integers, block_tokens: IntArray, limits: Limits, *, key: int) -> Packed:
        """Samples of one bucket in hashed order -> its queue. `key` is the bucket's own randomness."""

    def pack_all(self, measured: Measured, limits: Limits, *, seed: int, epoch: int) -> Packed:
        queues = []
        for bucket in range(len(measured.edges)):
            ids = measured.members(bucket, seed=seed, epoch=epoch)
            if len(ids):
                key = rng.key(seed, epoch, "queue", bucket)
                queue = self.pack(measured.padded[ids], measured.charged_blocks(ids), limits, key=key)
                queues.append(Packed(ids[queue.turn], queue.rows))
        return concatenate(queues)


def concatenate(parts: list[Packed]) -> Packed:
    return Packed(
        np.concatenate([part.turn for part in parts]), np.concatenate([part.rows for part in parts])
    )


def block_positions(supervised: IntArray, *, num_anchors: int, block_size: int) -> IntArray:
    """[n] supervised tokens -> [n] positions of the blocks that the drafter sees, at most."""
    return np.minimum(supervised, num_anchors) * block_size


def ragged_indices(starts: IntArray, rows: IntArray) -> IntArray:
    """Row ranges -> the indices they cover, range after range: ([4, 0], [2, 3]) -> [4, 5, 0, 1, 2]."""
    ends = np.cumsum(rows)
    indices: IntArray = np.arange(ends[-1] if len(ends) else 0)
    indices += np.repeat(starts - (ends - rows), rows)
    return indices
