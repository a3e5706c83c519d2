"""Stage 1: samples -> padded lengths and buckets, and which samples are left out.

in    Samples, PlanConfig, anchors per sample and block size
out   the edges; Measured
law   a sample is left out only where the config says so, by `min_length` or by oversize = drop
"""

import numpy as np

from dflash_lightning.plan import buckets
from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan.oversize import left_out
from dflash_lightning.plan.packing import Measured
from dflash_lightning.plan.samples import IntArray, Integers, Samples


def resolve_edges(samples: Samples, config: PlanConfig) -> tuple[int, ...]:
    """Upper bounds of the buckets in padded tokens: the given ones, or what the rule finds; merged if asked.

    Raises: ValueError without samples, where all are left out, and for oversize samples when `oversize` is
    "error".
    """
    out = left_out(samples, config)
    if not isinstance(config.edges, str):
        edges = buckets.given_edges(config.edges, config.pad_multiple)
    else:
        edges = _found_edges(samples.lengths[~out] if out.any() else samples.lengths, config)
    return edges if config.super_buckets is None else buckets.merged_edges(edges, config.super_buckets)


def _found_edges(lengths: IntArray, config: PlanConfig) -> tuple[int, ...]:
    limit, multiple = config.longest, config.pad_multiple
    padded = buckets.padded_lengths(lengths, limit=limit, pad_multiple=multiple)
    if config.edges == "optimal":
        return buckets.optimal_edges(padded, config.num_buckets, limit=limit, pad_multiple=multiple)
    return buckets.quantile_edges(padded, config.num_buckets)


def row_lengths(lengths: IntArray, edges: tuple[int, ...], config: PlanConfig) -> Integers:
    """[n] tokens -> [n] tokens to which each is padded on its own."""
    padded = buckets.padded_lengths(lengths, limit=edges[-1], pad_multiple=config.pad_multiple)
    if config.static_shapes:
        return np.array(edges, padded.dtype)[buckets.assign_buckets(padded, edges)]
    return padded


def measure(samples: Samples, config: PlanConfig, *, num_anchors: int, block_size: int) -> Measured:
    """What packing needs to know of every sample. Raises: ValueError as resolve_edges does."""
    edges = resolve_edges(samples, config)
    padded = row_lengths(samples.lengths, edges, config)
    bucket = buckets.assign_buckets(padded, edges).astype(np.min_scalar_type(-len(edges)))
    bucket[left_out(samples, config)] = -1
    return Measured(
        edges=edges,
        padded=padded,
        bucket=bucket,
        supervised=samples.supervised,
        num_anchors=num_anchors,
        block_size=block_size,
        static=config.static_shapes,
    )
