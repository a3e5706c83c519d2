"""The stages composed: one epoch's batches in order.

in    Samples, PlanConfig, anchors per sample and block size, seed, epoch
out   Plan
law   a pure function of its arguments: it knows no rank, world size or accumulation, so every rank computes
      the same plan and any world can resume it
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dflash_lightning.plan import digest, rng
from dflash_lightning.plan.config import PlanConfig, config_facts
from dflash_lightning.plan.measure import measure
from dflash_lightning.plan.measure import resolve_edges as resolve_edges
from dflash_lightning.plan.packing import Measured, ragged_indices
from dflash_lightning.plan.packing import block_positions as block_positions
from dflash_lightning.plan.samples import IntArray, Samples


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """All batches of one epoch, in order. Batch i holds sample_ids[offsets[i] : offsets[i + 1]]."""

    sample_ids: IntArray = field(repr=False)
    """[samples] ids, batch after batch."""
    offsets: IntArray = field(repr=False)
    """[batches + 1] where each batch begins, and the number of samples."""
    bucket: IntArray = field(repr=False)
    """[batches] bucket of each batch: that of its longest row."""
    padded_length: IntArray = field(repr=False)
    """[batches] tokens to which each row of a batch is padded."""
    block_tokens: IntArray = field(repr=False)
    """[batches] block positions: sum over the rows of min(num_anchors, supervised) * block_size."""
    edges: tuple[int, ...]
    """[buckets] inclusive upper bounds in padded tokens."""
    dropped: IntArray = field(repr=False)
    """Ids of the samples left out: too long (oversize = drop) or shorter than `min_length`."""
    truncated: int
    """Samples that count as cut to the last edge (oversize = truncate)."""
    num_anchors: int
    block_size: int
    seed: int
    epoch: int
    digest: str
    """24 hex digits over the samples, the settings and the order: equal digests mean equal training data."""

    @property
    def num_batches(self) -> int:
        return len(self.bucket)

    def batch(self, i: int) -> IntArray:
        """Sample ids of batch i."""
        return self.sample_ids[self.offsets[i] : self.offsets[i + 1]]


def plan_epoch(
    samples: Samples, config: PlanConfig, *, num_anchors: int, block_size: int, seed: int, epoch: int
) -> Plan:
    """Samples -> buckets -> queues of batches -> one order.

    Raises: ValueError as resolve_edges does.
    """
    measured = measure(samples, config, num_anchors=num_anchors, block_size=block_size)
    packed = config.packing.pack_all(measured, config.batch_limits, seed=seed, epoch=epoch)
    starts = np.cumsum(packed.rows) - packed.rows
    padded_length = np.maximum.reduceat(measured.padded[packed.turn], starts).astype(np.int64)
    block_tokens = np.add.reduceat(measured.blocks(packed.turn), starts)
    bucket = measured.labels(padded_length)
    turn = _turns(bucket, config, num_buckets=len(measured.edges), key=rng.key(seed, epoch, "order"))
    sample_ids = packed.turn[ragged_indices(starts[turn], packed.rows[turn])]
    offsets = np.concatenate(([0], np.cumsum(packed.rows[turn])))
    facts = _facts(config, measured) | {"seed": seed, "epoch": epoch}
    edges = measured.edges
    return Plan(
        sample_ids=sample_ids,
        offsets=offsets,
        bucket=bucket[turn],
        padded_length=padded_length[turn],
        block_tokens=block_tokens[turn],
        edges=edges,
        dropped=np.flatnonzero(measured.bucket < 0),
        truncated=int((samples.lengths > edges[-1]).sum()) if config.oversize == "truncate" else 0,
        num_anchors=num_anchors,
        block_size=block_size,
        seed=seed,
        epoch=epoch,
        digest=digest.fingerprint(
            facts, [samples.lengths, samples.supervised, sample_ids, offsets, bucket[turn]]
        ),
    )


def plan_batches_count(
    samples: Samples, config: PlanConfig, *, num_anchors: int, block_size: int, seed: int, epoch: int
) -> int:
    """Batches of `plan_epoch` with the same arguments, for a third of its work: packing alone decides it."""
    measured = measure(samples, config, num_anchors=num_anchors, block_size=block_size)
    return len(config.packing.pack_all(measured, config.batch_limits, seed=seed, epoch=epoch).rows)


def _turns(bucket: IntArray, config: PlanConfig, *, num_buckets: int, key: int) -> IntArray:
    """[batches] bucket of each as they wait -> [batches] which of them runs at each step."""
    if config.packing.decides_order:
        return np.arange(len(bucket))
    labels = config.order.labels(np.bincount(bucket, minlength=num_buckets).tolist(), key=key)
    turns = np.empty(len(bucket), np.int64)
    turns[np.argsort(labels, kind="stable")] = np.argsort(bucket, kind="stable")
    return turns


def _facts(config: PlanConfig, measured: Measured) -> dict[str, Any]:
    """The settings that decide a plan, with the edges that were found in place of how."""
    facts = config_facts(config)
    for name in ("num_buckets", "super_buckets"):
        facts.pop(name, None)
    return facts | {
        "edges": list(measured.edges),
        "num_anchors": measured.num_anchors,
        "block_size": measured.block_size,
    }
