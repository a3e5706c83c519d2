"""The heaviest batches of an epoch, one window for each bucket: what a dry run trains.

in    the windows of an epoch
out   a few windows that need as much memory as any of them
law   every rank's batch of bucket b costs at least as much as the batch that any rank will ever get of it
"""

from dataclasses import replace

import numpy as np

from dflash_lightning.plan.deal import batch_cost
from dflash_lightning.plan.windows import RankBatch, Window, Windows


def rehearsal(windows: Windows) -> list[Window]:
    """One micro-step a window, buckets from short to long; buckets without a batch are left out.

    Rank r gets the r-th most expensive batch of the bucket; where there are fewer than ranks they come again,
    so that all ranks are loaded. The windows count on from each other as if they were the plan.
    """
    plan, world = windows.plan, windows.world
    rows = np.diff(plan.offsets)
    cost = batch_cost(rows, plan.padded_length, plan.block_tokens, windows.config)
    found = []
    for bucket in np.unique(plan.bucket).tolist():
        batches = np.flatnonzero(plan.bucket == bucket)
        heaviest = batches[np.argsort(-cost[batches], kind="stable")][:world]
        ranks = tuple(
            RankBatch(plan.batch(i), bucket, int(plan.padded_length[i]))
            for i in np.resize(heaviest, world).tolist()
        )
        found.append(Window(0, 0, (ranks,)))
    return [replace(window, start=i * world, stop=(i + 1) * world) for i, window in enumerate(found)]
