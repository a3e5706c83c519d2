"""Who runs what inside one window.

in    the cost of each of the window's batches, world size, the window's key
out   which batch each rank runs in each micro-step
law   every batch is dealt once, and ranks that step together carry like loads

Batches are dealt by cost, never by stride: a regular order with every second batch on rank 1 would give one
rank nearly all batches of a bucket that makes up half of the plan (spec/batching.md section 2.4).
"""

import numpy as np
import numpy.typing as npt

from dflash_lightning.plan import rng
from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan.samples import IntArray, Integers

FloatArray = npt.NDArray[np.float64]


def batch_cost(
    rows: IntArray, padded_length: Integers, block_tokens: IntArray, config: PlanConfig
) -> FloatArray:
    """[batches] each -> [batches] cost in padded tokens: the target's pass, its attention, the blocks."""
    quadratic = 0.0 if config.quadratic_length is None else padded_length / config.quadratic_length
    return rows * padded_length * (1.0 + quadratic) + config.block_cost * block_tokens


def deal(cost: FloatArray, *, world: int, key: int) -> IntArray:
    """[slots * world] costs -> [slots, world] which batch each rank runs in each micro-step.

    Sorted by cost and dealt in layers of `world`, so that ranks that step together carry like loads; every
    other layer runs backwards, so that the window's sums are alike too. Then slots and ranks are shuffled,
    else rank 0 would get the longest batch of every window. One rank keeps the order of the plan.
    """
    if world == 1:
        return np.arange(len(cost))[:, None]
    layers = cost_layers(cost, world=world)
    slots = rng.permutation(rng.key(key, "slots"), np.arange(len(layers)))
    ranks = rng.permutation(rng.key(key, "ranks"), np.arange(world))
    return layers[slots][:, ranks]


def cost_layers(cost: FloatArray, *, world: int) -> IntArray:
    """[..., slots * world] costs of a window -> [..., slots, world] its batches from dear to cheap, in layers
    of which every other one runs backwards."""
    slots = cost.shape[-1] // world
    layers = np.argsort(-cost, axis=-1, kind="stable").reshape(*cost.shape[:-1], slots, world)
    layers[..., 1::2, :] = layers[..., 1::2, ::-1].copy()
    return layers
