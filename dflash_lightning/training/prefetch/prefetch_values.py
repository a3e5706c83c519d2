"""The values behind prefetch/*: what all ranks' pipelines did since the last log, by name.

law   made of rows that every rank has, so that every rank logs the same; where ranks have n devices each,
      device d of rank r is device r * n + d of the run
"""

import math
from collections.abc import Sequence

from dflash_lightning.target.balance.interval import Interval

GIB = 1 << 30


def prefetch_values(ranks: Sequence[Interval], *, depth: int) -> dict[str, float]:
    """Everything there is to log. With several ranks, also by rank."""
    devices = [device for rank in ranks for device in rank.devices]
    dealt = sum(device.dispatched for device in devices)
    by_bucket = [sum(counts) for counts in zip(*(rank.buckets for rank in ranks), strict=True)]
    return {
        "prefetch/depth": float(depth),
        **{f"prefetch/queue_depth_{i}": device.depth for i, device in enumerate(devices)},
        "prefetch/queue_depth": sum(device.depth for device in devices),
        "prefetch/imbalance": imbalance([device.queued_tokens for device in devices]),
        **_waits(ranks),
        "prefetch/tokens_in_flight": sum(map(_tokens, ranks)),
        "prefetch/gib_in_flight": sum(rank.bytes_in_flight for rank in ranks) / GIB,
        "prefetch/peak_gib": max(rank.peak_bytes for rank in ranks) / GIB,
        **{f"prefetch/dispatched_device_{i}_pct": _pct(d.dispatched, dealt) for i, d in enumerate(devices)},
        **_buckets(by_bucket),
        **(_by_rank(ranks) if len(ranks) > 1 else {}),
    }


def imbalance(values: Sequence[float]) -> float:
    """Largest over mean: 1 is even, the number of values is all in one of them; NaN where all are 0."""
    return max(values) * len(values) / sum(values) if sum(values) else math.nan


def _waits(ranks: Sequence[Interval]) -> dict[str, float]:
    wait, seconds = sum(rank.wait for rank in ranks), sum(rank.seconds for rank in ranks)
    return {"prefetch/wait_s": wait, "prefetch/wait_pct": _pct(wait, seconds)}


def _by_rank(ranks: Sequence[Interval]) -> dict[str, float]:
    values = {"prefetch/wait_imbalance": imbalance([rank.wait for rank in ranks])}
    for number, rank in enumerate(ranks):
        if len(rank.devices) > 1:  # of one device it is always 1
            queued = [device.queued_tokens for device in rank.devices]
            values[f"prefetch/imbalance_rank_{number}"] = imbalance(queued)
        values |= _buckets(rank.buckets, f"_rank_{number}")
        values[f"prefetch/wait_s_rank_{number}"] = rank.wait
        values[f"prefetch/wait_pct_rank_{number}"] = _pct(rank.wait, rank.seconds)
        values[f"prefetch/tokens_in_flight_rank_{number}"] = _tokens(rank)
    return values


def _buckets(counts: Sequence[float], suffix: str = "") -> dict[str, float]:
    dealt = sum(counts)
    return {f"prefetch/dispatched_bucket_{i}_pct{suffix}": _pct(n, dealt) for i, n in enumerate(counts)}


def _tokens(rank: Interval) -> float:
    return sum(device.queued_tokens for device in rank.devices)


def _pct(part: float, whole: float) -> float:
    return 100 * part / whole if whole else math.nan
