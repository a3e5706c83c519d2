"""The stages composed: one epoch's batches in order.

in    Samples, PlanConfig, anchors per sample and block size, seed, epoch
out   Plan
law   a pure function of its arguments: it knows no rank, world size or accumulation, so every rank computes
      the same plan and any world can resume it
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dflash_lightning.plan import buckets, digest, rng
from dflash_lightning.plan.batches import Packed, ragged_indices
from dflash_lightning.plan.config import PlanConfig, config_facts
from dflash_lightning.plan.oversize import oversize
from dflash_lightning.plan.samples import IntArray, Samples


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """All batches of one epoch, in order. Batch i holds sample_ids[offsets[i] : offsets[i + 1]]."""

    sample_ids: IntArray = field(repr=False)
    """[samples] ids, batch after batch."""
    offsets: IntArray = field(repr=False)
    """[batches + 1] where each batch begins, and the number of samples."""
    bucket: IntArray = field(repr=False)
    """[batches] bucket of each batch."""
    padded_length: IntArray = field(repr=False)
    """[batches] tokens to which each row of a batch is padded."""
    block_tokens: IntArray = field(repr=False)
    """[batches] block positions: sum over the rows of min(num_anchors, supervised) * block_size."""
    edges: tuple[int, ...]
    """[buckets] inclusive upper bounds in padded tokens."""
    dropped: IntArray = field(repr=False)
    """Ids of the samples left out because they are too long (oversize = drop)."""
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


@dataclass(frozen=True, eq=False)
class _Measured:
    """The samples as the planner sees them."""

    edges: tuple[int, ...]
    padded: IntArray
    block_tokens: IntArray
    bucket: IntArray
    """-1 where a sample is left out."""


def resolve_edges(samples: Samples, config: PlanConfig) -> tuple[int, ...]:
    """Upper bounds of the buckets in padded tokens: the given ones, or what the rule finds.

    Raises: ValueError without samples, and for oversize samples when `oversize` is "error".
    """
    too_long = oversize(samples, config)
    if not isinstance(config.edges, str):
        return buckets.given_edges(config.edges, config.pad_multiple)
    limit, multiple = config.longest, config.pad_multiple
    kept = samples.lengths[~too_long] if config.oversize == "drop" else samples.lengths
    padded = buckets.padded_lengths(kept, limit=limit, pad_multiple=multiple)
    if config.edges == "optimal":
        return buckets.optimal_edges(padded, config.num_buckets, limit=limit, pad_multiple=multiple)
    return buckets.quantile_edges(padded, config.num_buckets)


def plan_epoch(
    samples: Samples, config: PlanConfig, *, num_anchors: int, block_size: int, seed: int, epoch: int
) -> Plan:
    """Samples -> buckets -> queues of batches -> one order.

    Raises: ValueError as resolve_edges does.
    """
    measured = _measure(samples, config, num_anchors=num_anchors, block_size=block_size)
    queues = list(_queues(measured, config, seed=seed, epoch=epoch))
    labels = config.order.labels([len(queue.rows) for queue in queues], key=rng.key(seed, epoch, "order"))
    sample_ids, rows = _in_order(queues, labels)
    offsets = np.concatenate(([0], np.cumsum(rows)))
    edges = measured.edges
    facts = config_facts(config) | {
        "edges": list(edges),
        "num_anchors": num_anchors,
        "block_size": block_size,
    }
    facts.pop("num_buckets", None)  # the edges it led to are here
    return Plan(
        sample_ids=sample_ids,
        offsets=offsets,
        bucket=labels,
        padded_length=np.maximum.reduceat(measured.padded[sample_ids], offsets[:-1]),
        block_tokens=np.add.reduceat(measured.block_tokens[sample_ids], offsets[:-1]),
        edges=edges,
        dropped=np.flatnonzero(measured.bucket < 0),
        truncated=int((samples.lengths > edges[-1]).sum()) if config.oversize == "truncate" else 0,
        num_anchors=num_anchors,
        block_size=block_size,
        seed=seed,
        epoch=epoch,
        digest=digest.fingerprint(
            facts | {"seed": seed, "epoch": epoch},
            [samples.lengths, samples.supervised, sample_ids, offsets, labels],
        ),
    )


def plan_batches_count(
    samples: Samples, config: PlanConfig, *, num_anchors: int, block_size: int, seed: int, epoch: int
) -> int:
    """Batches of `plan_epoch` with the same arguments, for a third of its work: packing alone decides it."""
    measured = _measure(samples, config, num_anchors=num_anchors, block_size=block_size)
    return sum(len(queue.rows) for queue in _queues(measured, config, seed=seed, epoch=epoch))


def block_positions(supervised: IntArray, *, num_anchors: int, block_size: int) -> IntArray:
    """[n] supervised tokens -> [n] positions of the blocks that the drafter sees, at most."""
    return np.minimum(supervised, num_anchors) * block_size


def _measure(samples: Samples, config: PlanConfig, *, num_anchors: int, block_size: int) -> _Measured:
    edges = resolve_edges(samples, config)
    padded = buckets.padded_lengths(samples.lengths, limit=edges[-1], pad_multiple=config.pad_multiple)
    bucket = buckets.assign_buckets(padded, edges)
    if config.oversize == "drop":
        bucket[samples.lengths > edges[-1]] = -1
    # A truncated sample may lose supervised tokens, but never has more of them than tokens are left.
    supervised = np.minimum(samples.supervised, padded)
    blocks = block_positions(supervised, num_anchors=num_anchors, block_size=block_size)
    return _Measured(edges, padded, blocks, bucket)


def _queues(measured: _Measured, config: PlanConfig, *, seed: int, epoch: int) -> Iterator[Packed]:
    """The queue of each bucket; `turn` holds sample ids."""
    for bucket in range(len(measured.edges)):
        members = np.flatnonzero(measured.bucket == bucket)
        ids = rng.permutation(rng.key(seed, epoch, "samples", bucket), members)
        if not len(ids):
            yield Packed(ids, ids)
            continue
        queue_key = rng.key(seed, epoch, "queue", bucket)
        padded, blocks = measured.padded[ids], measured.block_tokens[ids]
        packed = config.packing.pack(padded, blocks, config.batch_limits, key=queue_key)
        yield Packed(ids[packed.turn], packed.rows)


def _in_order(queues: list[Packed], labels: IntArray) -> tuple[IntArray, IntArray]:
    """Queues and the bucket served at each step -> (sample ids batch after batch, rows of each batch)."""
    sample_ids = np.concatenate([queue.turn for queue in queues])
    rows = np.concatenate([queue.rows for queue in queues])
    served = np.empty(len(labels), np.int64)  # which batch, counted through all queues, runs at each step
    served[np.argsort(labels, kind="stable")] = np.arange(len(labels))
    starts = np.cumsum(rows) - rows
    return sample_ids[ragged_indices(starts[served], rows[served])], rows[served]
