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


# --- from the lines that MicroBatches writes

Line = dict[str, Any]


def by_step(ranks: Sequence[Sequence[Line]]) -> dict[int, list[Line]]:
    """Applied micro-batches of all ranks by optimizer step; of one written twice, the later."""
    lines = {(line["step"], line["rank"], line["micro_step"]): line for rank in ranks for line in rank}
    steps: dict[int, list[Line]] = {step: [] for step, *_ in sorted(lines)}
    for (step, *_), line in sorted(lines.items()):
        steps[step] += [line] if line["applied"] else []
    return steps


def _ratio(lines: Sequence[Line], above: Sequence[str], below: str) -> float:
    return sum(line[name] for line in lines for name in above) / sum(line[below] for line in lines)


def losses(steps: dict[int, list[Line]], *, upto: int, every: int, buckets: int) -> dict[str, float]:
    """What the module and LossBands log at step `upto`, without the variance split and the alarms."""
    lines = [line for step in range(upto - every + 1, upto + 1) for line in steps[step]]
    values = {
        "train/loss": _ratio(lines, ["loss_sum"], "weight"),
        "train/accuracy": _ratio(lines, ["correct"], "supervised"),
        "train/tau": _ratio(lines, ["streak", "blocks"], "blocks"),
    }
    seen = {}
    for bucket in range(len(plan)):
        ours = [line for line in lines if line["bucket"] == bucket and line["weight"]]
        if ours:
            seen[f"loss/bucket_{bucket}"] = _ratio(ours, ["loss_sum"], "weight")
            values[f"acceptance/bucket_{bucket}"] = _ratio(ours, ["streak", "blocks"], "blocks")
    spread = {"loss/spread": max(seen.values()) - min(seen.values())} if len(seen) > 1 else {}
    return values | seen | spread


def mix_pct(steps: dict[int, list[Line]], *, upto: int, every: int, buckets: int, half_life: float) -> float:
    """loss/mix_pct at step `upto`, by its formula; all steps before it are walked again."""
    means: list[list[float]] = [[] for _ in range(buckets)]
    before, mix, rest = None, 0.0, 0.0
    for step in range(1, upto + 1):
        of = [
            [line for line in steps[step] if line["bucket"] == b and line["weight"]] for b in range(buckets)
        ]
        weight = sum(line["weight"] for ours in of for line in ours)
        share = [sum(line["weight"] for line in ours) / weight for ours in of]
        loss = _ratio(steps[step], ["loss_sum"], "weight")
        known = all(means[b] or share[b] == (before or [share])[0][b] == 0 for b in range(buckets))
        if before and known and step > upto - every:
            moved = [(share[b] - before[0][b]) * _running(means[b], half_life) for b in range(buckets)]
            mix += sum(moved) ** 2
            rest += (loss - before[1] - sum(moved)) ** 2
        for b, ours in enumerate(of):
            means[b] += [_ratio(ours, ["loss_sum"], "weight")] if ours else []
        before = share, loss
    return 100 * mix / (mix + rest)


def _running(values: Sequence[float], half_life: float) -> float:
    """Running mean: a plain one at first, later one with a half-life."""
    mean = 0.0
    for number, value in enumerate(values, start=1):
        mean += max(1 - 0.5 ** (1 / half_life), 1 / number) * (value - mean)
    return mean
