"""The documented metrics, recomputed slowly from recorded micro-batches (design.md 4, Numbers shown)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dflash_lightning.plan.epoch import plan_epoch
from dflash_lightning.plan.samples import Samples
from tests.runs import PLAN


def bucket_mix(
    windows: Sequence[Sequence[dict[str, Any]]], *, upto: int, every: int, recent: int, plan: Sequence[float]
) -> dict[str, float]:
    """What BucketMix logs at step `upto`. `windows`: per optimizer step, the micro-batches of all ranks;
    `plan`: share of each bucket among the epoch's batches."""
    values = {}
    for suffix, steps in (("", windows[max(0, upto - recent) : upto]), ("_total", windows[:upto])):
        batches = [batch for step in steps for batch in step]
        for kind, count in (("", _one), ("_samples", _samples), ("_tokens", _tokens)):
            whole = sum(map(count, batches))
            for bucket in range(len(plan)):
                part = sum(count(b) for b in batches if b["bucket"] == bucket)
                values[f"batch/bucket_{bucket}{kind}_pct{suffix}"] = 100 * part / whole
    distances = [
        sum(abs(sum(b["bucket"] == i for b in step) / len(step) - share) for i, share in enumerate(plan)) / 2
        for step in windows[upto - every : upto]
    ]
    last = [batch for step in windows[upto - every : upto] for batch in step]
    samples, tokens = sum(map(_samples, last)), sum(map(_tokens, last))
    lengths = [length for b in last for i, length in zip(b["ids"], b["lengths"], strict=True) if i >= 0]
    return values | {
        "batch/mix_distance": sum(distances) / every,
        "batch/avg_seq_len": tokens / samples,
        "batch/max_seq_len": max(lengths),
        "batch/batch_size": samples / len(last),
        "batch/padding_efficiency": tokens / sum(_samples(b) * b["padded_length"] for b in last),
    }


def plan_shares(lengths: Sequence[int]) -> list[float]:
    """Share of each bucket among the batches planned for tests/runs.py:make_store(lengths), epoch 0."""
    real = np.array(lengths)
    samples = Samples(lengths=real, supervised=real - real // 3)
    labels = plan_epoch(samples, PLAN, num_anchors=5, block_size=4, seed=0, epoch=0).bucket.tolist()
    return [labels.count(bucket) / len(labels) for bucket in range(len(PLAN.edges))]


def _one(batch: dict[str, Any]) -> int:
    return 1


def _samples(batch: dict[str, Any]) -> int:
    return sum(i >= 0 for i in batch["ids"])


def _tokens(batch: dict[str, Any]) -> int:
    return sum(length for i, length in zip(batch["ids"], batch["lengths"], strict=True) if i >= 0)


def in_windows(ranks: Sequence[Sequence[dict[str, Any]]], accumulate: int) -> list[list[dict[str, Any]]]:
    """Micro-batches by rank -> micro-batches by optimizer step, ranks together; one epoch."""
    return [
        [batch for rank in ranks for batch in rank[start : start + accumulate]]
        for start in range(0, len(ranks[0]), accumulate)
    ]
