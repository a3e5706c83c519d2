"""Plan one million samples: seconds, peak memory, and what the plan is worth.

    python benchmarks/plan_million.py

The lengths are drawn like those of the documented run (905,600 samples of 2,468 tokens on average, 30 % of
the longest bucket cut at 8,192): the fit is in `documented_mix`.
"""

import json
import time
import tracemalloc

import numpy as np

from dflash_lightning.plan import (
    DiversityFirst,
    Order,
    PlanConfig,
    RandomOrder,
    Samples,
    Shuffle,
    cut_windows,
    plan_epoch,
    summarize,
)

EDGES = (1216, 1728, 2240, 2784, 3296, 8192)
SHARES = (0.3019, 0.1280, 0.1245, 0.1225, 0.1211, 0.2020)
DOCUMENTED_SAMPLES = 905_600
SUPERVISED_SHARE = 0.7
ANCHORS = {"num_anchors": 512, "block_size": 16}


def documented_mix(num_samples: int = DOCUMENTED_SAMPLES, *, seed: int = 0) -> Samples:
    """Synthetic lengths that reproduce the bucket shares and batch counts of the documented run."""
    rng = np.random.default_rng(seed)
    bucket = rng.choice(len(SHARES), num_samples, p=np.array(SHARES) / sum(SHARES))
    edges = np.array((0, *EDGES))
    lengths = rng.integers(edges[bucket] + 1, edges[bucket + 1], endpoint=True)
    shortest, longest = bucket == 0, bucket == len(EDGES) - 1
    lengths[shortest] = _lognormal(rng, int(shortest.sum()), np.log(330), 0.30, low=0, high=EDGES[0])
    lengths[longest] = _lognormal(rng, int(longest.sum()), 8.55, 0.45, low=EDGES[-2], high=EDGES[-1])
    lengths[longest & (rng.random(num_samples) < 0.3)] = EDGES[-1]  # cut when they were tokenized
    return Samples(lengths, np.maximum(1, (SUPERVISED_SHARE * lengths).astype(np.int64)))


def _lognormal(
    rng: np.random.Generator, count: int, mean: float, sigma: float, *, low: int, high: int
) -> np.ndarray:
    """Integers in (low, high]; what falls outside is drawn again."""
    kept = np.empty(0, np.int64)
    while len(kept) < count:
        drawn = np.ceil(rng.lognormal(mean, sigma, 2 * count)).astype(np.int64)
        kept = np.concatenate((kept, drawn[(drawn > low) & (drawn <= high)]))
    return kept[:count]


def timed_plan(samples: Samples, config: PlanConfig) -> tuple[float, float]:
    """(seconds, peak MB above the lengths); two runs, because tracing memory slows the planner down."""
    begin = time.perf_counter()
    plan_epoch(samples, config, **ANCHORS, seed=0, epoch=0)
    seconds = time.perf_counter() - begin
    tracemalloc.start()
    plan_epoch(samples, config, **ANCHORS, seed=0, epoch=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak / 1e6


def compare_orders(samples: Samples, config: PlanConfig) -> None:
    print(
        f"\n{'packing':<12} {'order':<15} {'batches':>8} {'fill':>7} {'longest':>8} {'last run':>9} {'neighbours':>11}"
    )
    orders: list[Order] = [config.order, Shuffle(), DiversityFirst()]
    for packing in (config.packing, RandomOrder()):
        for order in orders:
            variant = PlanConfig(edges=EDGES, max_block_tokens=0, packing=packing, order=order)
            facts = summarize(plan_epoch(samples, variant, **ANCHORS, seed=0, epoch=0), samples)
            names = f"{type(packing).__name__:<12} {type(order).__name__:<15}"
            print(
                f"{names} {facts.batches:>8,} {facts.padding_efficiency:>7.4f} {facts.longest_run:>8,} "
                f"{facts.final_run:>9,} {facts.equal_neighbours:>11,}"
            )


def main() -> None:
    million = documented_mix(1_000_000)
    rows = [
        ("given edges", PlanConfig(edges=EDGES)),
        ("quantile edges", PlanConfig()),
        ("optimal edges", PlanConfig(edges="optimal")),
        ("random packing", PlanConfig(edges=EDGES, packing=RandomOrder())),
        ("one row a batch", PlanConfig(edges=EDGES, max_rows=1)),
    ]
    figures = {}
    for name, config in rows:
        seconds, peak_mb = timed_plan(million, config)
        figures[name] = {"seconds": round(seconds, 3), "peak_mb": round(peak_mb, 1)}
        print(
            f"{name:<16} 1,000,000 samples planned in {seconds:.2f} s, peak {peak_mb:.0f} MB above the lengths"
        )
    plan = plan_epoch(million, rows[0][1], **ANCHORS, seed=0, epoch=0)
    begin = time.perf_counter()
    windows = cut_windows(plan, million, rows[0][1], 0, world=8, accumulate=4)
    windows[len(windows) // 2]
    jump = time.perf_counter() - begin
    begin = time.perf_counter()
    for i in range(len(windows)):
        windows[i]
    window_us = (time.perf_counter() - begin) / len(windows) * 1e6
    print(
        f"resume in the middle: {jump * 1e3:.2f} ms after the plan; a window of 32 batches: {window_us:.0f} us"
    )
    compare_orders(documented_mix(), rows[0][1])
    print(json.dumps({"samples": 1_000_000, **figures, "jump_ms": round(jump * 1e3, 3)}))


if __name__ == "__main__":
    main()
