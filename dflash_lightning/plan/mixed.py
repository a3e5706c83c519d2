"""MixedBuckets: batches that take samples of any length, as they come."""

from dataclasses import dataclass

import numpy as np

from dflash_lightning.plan.cut import Limits, cut_in_order
from dflash_lightning.plan.packing import Measured, Packed, Packing


@dataclass(frozen=True, kw_only=True)
class MixedBuckets(Packing):
    """Take shuffled samples of all buckets, close a batch when the next is too much.

    Each batch is an honest sample of all lengths, and every row pays for the longest: ten samples of 700
    tokens beside ten of 1,700 fill 24,000 of 34,000 tokens, and the documented mix 42 % of its batches
    (spec/batching.md section 3). The order deals with the buckets of the longest rows.
    """

    def pack_all(self, measured: Measured, limits: Limits, *, seed: int, epoch: int) -> Packed:
        ids = measured.everyone(seed=seed, epoch=epoch)
        starts = cut_in_order(measured.padded[ids], measured.charged_blocks(ids), limits)
        return Packed(ids, np.diff(starts, append=len(ids)))
