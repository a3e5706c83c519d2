"""Plan one million samples, or as many as asked: seconds, peak memory, and what the plan is worth.

    python -m benchmarks.plan_million [--samples 10000000]

The lengths are drawn like those of the documented run (905,600 samples of 2,468 tokens on average, 30 % of
the longest bucket cut at 8,192): `ordering/mix.py`. Seconds are CPU seconds of the one thread that plans:
other work on the machine disturbs those least.
"""

import argparse
import json
import time
import tracemalloc

from benchmarks.ordering.mix import ANCHORS, DOCUMENTED_SAMPLES, EDGES, documented_mix
from dflash_lightning.plan import (
    Credit,
    DiversityFirst,
    MixedBuckets,
    PlanConfig,
    PoolSorted,
    RandomOrder,
    Samples,
    Shuffle,
    WindowFirst,
    cut_windows,
    plan_epoch,
    summarize,
)

LIMITS = {1_000_000: (2.0, 150.0), 10_000_000: (10.0, 500.0)}
"""Seconds and MB above the lengths that a plan of so many samples may take."""


def timed_plan(samples: Samples, config: PlanConfig, rounds: int) -> tuple[float, float]:
    """(CPU seconds, peak MB above the lengths): the best run, and one more under the memory tracer."""
    seconds = []
    for epoch in range(rounds):
        begin = time.process_time()
        plan_epoch(samples, config, **ANCHORS, seed=0, epoch=epoch)
        seconds.append(time.process_time() - begin)
    tracemalloc.start()
    plan_epoch(samples, config, **ANCHORS, seed=0, epoch=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return min(seconds), peak / 1e6


def plan_all(samples: Samples, rounds: int) -> dict[str, dict[str, float]]:
    variants = {
        "default (quantile edges)": PlanConfig(),
        "given edges": PlanConfig(edges=EDGES),
        "optimal edges": PlanConfig(edges="optimal"),
        "random-order packing": PlanConfig(edges=EDGES, packing=RandomOrder()),
        "mixed buckets": PlanConfig(edges=EDGES, packing=MixedBuckets()),
        "window-first, 32 batches": PlanConfig(edges=EDGES, packing=WindowFirst(window_batches=32)),
        "no block budget": PlanConfig(edges=EDGES, max_block_tokens=0),
    }
    limits = LIMITS.get(len(samples))
    asked = f" (limits: {limits[0]:g} s, {limits[1]:g} MB above the lengths)" if limits else ""
    print(f"{len(samples):,} samples{asked}")
    figures = {}
    for name, config in variants.items():
        seconds, peak_mb = timed_plan(samples, config, rounds)
        figures[name] = {"seconds": round(seconds, 3), "peak_mb": round(peak_mb, 1)}
        shares = f"{seconds / limits[0]:.2f} and {peak_mb / limits[1]:.2f} of the limits" if limits else ""
        print(f"  {name:<26} {seconds:5.2f} s {peak_mb:5.0f} MB   {shares}", flush=True)
    return figures


def resume_in_the_middle(samples: Samples) -> dict[str, float]:
    """What a resume costs beyond planning, and what a window costs while training."""
    config = PlanConfig(edges=EDGES)
    plan = plan_epoch(samples, config, **ANCHORS, seed=0, epoch=0)
    begin = time.process_time()
    cut_windows(plan, samples, config, plan.num_batches // 2, world=8, accumulate=4)[0]
    jump_ms = (time.process_time() - begin) * 1e3
    windows = cut_windows(plan, samples, config, 0, world=8, accumulate=4)
    begin = time.process_time()
    for i in range(len(windows)):
        windows[i]
    window_us = (time.process_time() - begin) / len(windows) * 1e6
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="runs of which the best counts")
    args = parser.parse_args()
    samples = documented_mix(args.samples)
    figures = {"plans": plan_all(samples, args.rounds), "resume": resume_in_the_middle(samples)}
    print(f"\nthe documented run, {DOCUMENTED_SAMPLES:,} samples")
    compare_orders(documented_mix())
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
