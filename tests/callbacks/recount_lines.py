"""What is logged by bucket, recomputed slowly from the lines that MicroBatches writes."""

import math
from collections.abc import Sequence
from typing import Any

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
    """What the module and LossBands log at step `upto`, without the variance split and the alarms.

    NaN for what had no tokens.
    """
    lines = [line for step in range(upto - every + 1, upto + 1) for line in steps[step]]
    values = {
        "train/loss": _ratio(lines, ["loss_sum"], "weight"),
        "train/accuracy": _ratio(lines, ["correct"], "supervised"),
        "train/tau": _ratio(lines, ["streak", "blocks"], "blocks"),
    }
    seen = []
    for bucket in range(buckets):
        ours = [line for line in lines if line["bucket"] == bucket and line["weight"]]
        loss = _ratio(ours, ["loss_sum"], "weight") if ours else math.nan
        seen += [loss] if ours else []
        values[f"loss/bucket_{bucket}"] = loss
        values[f"acceptance/bucket_{bucket}"] = (
            _ratio(ours, ["streak", "blocks"], "blocks") if ours else math.nan
        )
    return values | {"loss/spread": max(seen) - min(seen) if len(seen) > 1 else math.nan}


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
