"""Section 3 of spec/batching.md: what each packing, edge rule and cap is worth on the documented mix."""

from dataclasses import replace

import numpy as np

from benchmarks.ordering.mix import ANCHORS, EDGES
from benchmarks.ordering.table import beside, number, print_table
from dflash_lightning.plan import (
    DiversityFirst,
    MixedBuckets,
    Plan,
    PlanConfig,
    PoolSorted,
    RandomOrder,
    Samples,
    WindowFirst,
    plan_epoch,
)
from dflash_lightning.plan.judge.balance import judge_balance
from dflash_lightning.plan.judge.judgement import over_budget

BASE = PlanConfig(edges=EDGES, max_block_tokens=0)
Noted = tuple[float, int, float | None]  # efficiency, batches, share of the largest bucket

BOUNDARIES: dict[str, tuple[PlanConfig, Noted | None, Noted | None]] = {
    "C: merged to 3": (replace(BASE, super_buckets=3), (0.637, 73_599, 0.642), (0.994, 49_737, 0.628)),
    "C: merged to 4": (
        replace(BASE, edges=(1216, 2240, 3296, 8192)),  # the middle ones in pairs
        (0.778, 60_018, 0.505),
        (0.995, 49_774, 0.486),
    ),
    "the same, super_buckets 4": (replace(BASE, super_buckets=4), None, None),  # pairs from the first one on
    "published": (BASE, (0.807, 57_975, 0.523), (0.9955, 49_732, 0.486)),
    "equal width": (
        replace(BASE, edges=tuple(np.linspace(0, 8192, 7)[1:].round().astype(int).tolist())),
        (0.786, 59_305, 0.280),
        (0.996, 49_607, 0.258),
    ),
    "quantile": (replace(BASE, edges="quantile"), (0.807, 58_917, 0.425), (0.996, 49_626, 0.434)),
    "optimal": (replace(BASE, edges="optimal"), (0.864, 55_102, 0.324), (0.997, 49_627, 0.341)),
    "published, split at 5120": (
        replace(BASE, edges=(*EDGES[:-1], 5120, 8192)),
        (0.863, 54_456, 0.370),
        (0.997, 49_691, 0.373),
    ),
    "published, split at 4608, 6208": (
        replace(BASE, edges=(*EDGES[:-1], 4608, 6208, 8192)),
        (0.886, 53_210, 0.281),
        (0.997, 49_677, 0.296),
    ),
}
POOLS = {4: (0.945, 59_360), 8: (0.969, 53_798), 16: (0.983, 51_458), 32: (0.991, 50_231)}
POOLS |= {64: (0.9955, 49_732), 128: (0.998, 49_408), 256: (0.999, 49_304), 1024: (0.9997, 49_192)}
CAPS = {64: 49_732, 128: 47_723, 192: 47_399}
WINDOWS: dict[int, tuple[float, int | None]] = {
    4: (0.729, None),
    8: (0.851, 57_080),
    32: (0.957, 50_912),
    128: (0.989, 49_664),
}
MULTIPLES = (64, 128, 256)
DEALT_BY_TOKENS = replace(BASE, quadratic_length=None, block_cost=0.0)
END_TO_END: dict[str, tuple[PlanConfig, tuple[float, float, float]]] = {
    "documented: random order, diversity_first": (
        replace(DEALT_BY_TOKENS, packing=RandomOrder(), order=DiversityFirst()),
        (1.254, 1.267, 1.271),
    ),
    "pool-sorted, credit, cap 64": (DEALT_BY_TOKENS, (1.051, 1.073, 1.082)),
    "pool-sorted, credit, cap 128": (replace(DEALT_BY_TOKENS, max_rows=128), (1.023, 1.035, 1.041)),
}


def facts(samples: Samples, config: PlanConfig) -> tuple[float, int, float]:
    """Padding efficiency, batches, share of the bucket with most of them."""
    plan = plan_epoch(samples, config, **ANCHORS, seed=0, epoch=0)
    assert not over_budget(plan, config)
    share = np.bincount(plan.bucket).max() / plan.num_batches
    return efficiency(plan, samples), plan.num_batches, float(share)


def efficiency(plan: Plan, samples: Samples) -> float:
    return float(samples.lengths.sum() / (np.diff(plan.offsets) * plan.padded_length).sum())


def print_all(samples: Samples) -> None:
    boundaries(samples)
    pools_and_caps(samples)
    window_first(samples)
    end_to_end(samples)
    issue_bounds(samples)


def boundaries(samples: Samples) -> None:
    mixed = replace(BASE, packing=MixedBuckets())
    one = replace(BASE, edges=(EDGES[-1],))
    rows = [["A: no buckets", *_cells(samples, mixed, (0.424, 119_201, None))]]
    rows[0] += _cells(samples, one, (0.983, 50_045, None))
    for name, (config, random, sorted_) in BOUNDARIES.items():
        cells = _cells(samples, replace(config, packing=RandomOrder()), random)
        rows.append([name, *cells, *_cells(samples, config, sorted_)])
    packed = [
        f"{packing}: {what}" for packing in ("random", "pool-64") for what in ("fill", "batches", "largest")
    ]
    print_table("Section 3: edges and packings", ["edges", *packed], rows)


def _cells(samples: Samples, config: PlanConfig, noted: Noted | None) -> list[str]:
    fill, batches, share = facts(samples, config)
    if noted is None:
        return [number(fill), f"{batches:,}", number(share)]
    return [beside(fill, noted[0]), beside(batches, noted[1]), beside(share, noted[2])]


def pools_and_caps(samples: Samples) -> None:
    rows = []
    for pool, noted in POOLS.items():
        fill, batches, _ = facts(samples, replace(BASE, packing=PoolSorted(pool_batches=pool)))
        rows.append([f"pool of {pool} batches, cap 64", beside(fill, noted[0]), beside(batches, noted[1])])
    for cap, noted_batches in CAPS.items():
        fill, batches, _ = facts(samples, replace(BASE, max_rows=cap))
        rows.append([f"pool of 64 batches, cap {cap}", f"{fill:.4f}", beside(batches, noted_batches)])
    for multiple in MULTIPLES:
        fill, batches, _ = facts(samples, replace(BASE, pad_multiple=multiple))
        rows.append([f"lengths rounded up to {multiple}", f"{fill:.4f}", f"{batches:,}"])
    default = PlanConfig(edges=EDGES)
    fill, batches, _ = facts(samples, default)
    rows.append(
        [f"with the default block budget, {default.max_block_tokens:,}", f"{fill:.4f}", f"{batches:,}"]
    )
    print_table("Section 3: pools, caps, rounding", ["packing", "fill", "batches"], rows)


def window_first(samples: Samples) -> None:
    rows = []
    for size, (fill_noted, batches_noted) in WINDOWS.items():
        config = replace(BASE, packing=WindowFirst(window_batches=size))
        fill, batches, _ = facts(samples, config)
        rows.append([str(size), beside(fill, fill_noted), beside(batches, batches_noted)])
    print_table("Section 3: window-first", ["batches of a window", "fill", "batches"], rows)


def end_to_end(samples: Samples) -> None:
    rows = []
    for name, (config, noted) in END_TO_END.items():
        plan = plan_epoch(samples, config, **ANCHORS, seed=0, epoch=0)
        waits = [
            judge_balance(plan, samples, config, world=world, accumulate=4).linear for world in (2, 8, 32)
        ]
        rows.append(
            [
                name,
                *(beside(wait / efficiency(plan, samples), n) for wait, n in zip(waits, noted, strict=True)),
            ]
        )
    headings = ["strategy", "2 ranks", "8 ranks", "32 ranks"]
    print_table("Section 3: padded tokens of the slowest rank / real tokens, accumulation 4", headings, rows)


def issue_bounds(samples: Samples) -> None:
    """The bounds that the acceptance tests hold, at 8 ranks x 4; the defaults weigh attention and blocks."""
    large = replace(BASE, max_rows=128)
    rows = []
    for name, config in (
        ("cap 128, no block budget, default dealing", large),
        ("the same, blocks cost nothing", replace(large, block_cost=0.0)),
        ("the same, dealt by padded tokens alone", replace(large, quadratic_length=None, block_cost=0.0)),
        ("default block budget, default dealing", PlanConfig(edges=EDGES)),
    ):
        plan = plan_epoch(samples, config, **ANCHORS, seed=0, epoch=0)
        dealt = judge_balance(plan, samples, config, world=8, accumulate=4)
        rows.append([name, *(number(value) for value in (dealt.linear, dealt.quadratic, dealt.blocks))])
    headings = ["pool-sorted, credit", "linear", "quadratic", "with blocks"]
    print_table("Stragglers, 8 ranks x 4", headings, rows)
