"""Orders of the documented mix, by its published batch shares (spec/batching.md section 1)."""

from functools import cache

import numpy as np

from dflash_lightning.plan import rng

DOCUMENTED = (4336, 4122, 5177, 6470, 7548, 30322)
"""Batches of each bucket, 57,975 in all."""


def array(labels):
    return np.array(labels, np.int64)


@cache
def documented_order(order, seed=0):
    return order.labels(DOCUMENTED, key=rng.key(seed, 0, "order"))
