"""Plan one million samples: seconds, peak memory, and what the plan is worth.

    python -m benchmarks.plan_million

The lengths are drawn like those of the documented run (905,600 samples of 2,468 tokens on average, 30 % of
the longest bucket cut at 8,192): `ordering/mix.py`.
"""

import json
import time
import tracemalloc

from benchmarks.ordering.mix import ANCHORS, DOCUMENTED_SAMPLES, EDGES, documented_mix
from dflash_lightning.plan import (
    Credit,
    DiversityFirst,
    PlanConfig,
    PoolSorted,
    RandomOrder,
    Samples,
    Shuffle,
    cut_windows,
    plan_epoch,
    summarize,
)

LIMIT_S = 2.0
LIMIT_MB = 150.0


def timed_plan(samples: Samples, config: PlanConfig) -> tuple[float, float]:
    """(seconds, peak MB above the lengths): the best of three, and one more run under the memory tracer."""
    seconds = []
    for epoch in range(3):
        begin = time.perf_counter()
        plan_epoch(samples, config, **ANCHORS, seed=0, epoch=epoch)
        seconds.append(time.perf_counter() - begin)
    tracemalloc.start()
    plan_epoch(samples, config, **ANCHORS, seed=0, epoch=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return min(seconds), peak / 1e6


def plan_a_million(samples: Samples) -> dict[str, dict[str, float]]:
    variants = {
        "default (quantile edges)": PlanConfig(),
        "given edges": PlanConfig(edges=EDGES),
        "optimal edges": PlanConfig(edges="optimal"),
        "random-order packing": PlanConfig(edges=EDGES, packing=RandomOrder()),
        "no block budget": PlanConfig(edges=EDGES, max_block_tokens=0),
    }
    print(f"{len(samples):,} samples (limits: {LIMIT_S} s, {LIMIT_MB} MB above the lengths)")
    figures = {}
    for name, config in variants.items():
        seconds, peak_mb = timed_plan(samples, config)
        figures[name] = {"seconds": round(seconds, 3), "peak_mb": round(peak_mb, 1)}
        of_limits = f"{seconds / LIMIT_S:.2f} and {peak_mb / LIMIT_MB:.2f} of the limits"
        print(f"  {name:<26} {seconds:5.2f} s {peak_mb:5.0f} MB   {of_limits}")
    return figures


def resume_in_the_middle(samples: Samples) -> dict[str, float]:
    """What a resume costs beyond planning, and what a window costs while training."""
    config = PlanConfig(edges=EDGES)
    plan = plan_epoch(samples, config, **ANCHORS, seed=0, epoch=0)
    begin = time.perf_counter()
    cut_windows(plan, samples, config, plan.num_batches // 2, world=8, accumulate=4)[0]
    jump_ms = (time.perf_counter() - begin) * 1e3
    windows = cut_windows(plan, samples, config, 0, world=8, accumulate=4)
    begin = time.perf_counter()
    for i in range(len(windows)):
        windows[i]
    window_us = (time.perf_counter() - begin) / len(windows) * 1e6
    print(
        f"resume in the middle: {jump_ms:.2f} ms after the plan; a window of 32 batches: {window_us:.0f} us"
    )
    return {"jump_ms": round(jump_ms, 3), "window_us": round(window_us, 1)}


def compare_orders(samples: Samples) -> None:
    """The documented run's rules against the defaults, on its own lengths and without a block budget."""
    columns = "{:<12} {:<15} {:>8} {:>7} {:>8} {:>9} {:>11}"
    print(columns.format("packing", "order", "batches", "fill", "longest", "last run", "neighbours"))
    for packing in (PoolSorted(), RandomOrder()):
        for order in (Credit(), Shuffle(), DiversityFirst()):
            config = PlanConfig(edges=EDGES, max_block_tokens=0, packing=packing, order=order)
            facts = summarize(plan_epoch(samples, config, **ANCHORS, seed=0, epoch=0), samples)
            names = type(packing).__name__, type(order).__name__
            counts = [f"{n:,}" for n in (facts.longest_run, facts.final_run, facts.equal_neighbours)]
            print(columns.format(*names, f"{facts.batches:,}", f"{facts.padding_efficiency:.4f}", *counts))


def main() -> None:
    million = documented_mix(1_000_000)
    figures = {"plans": plan_a_million(million), "resume": resume_in_the_middle(million)}
    print(f"\nthe documented run, {DOCUMENTED_SAMPLES:,} samples")
    compare_orders(documented_mix())
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
