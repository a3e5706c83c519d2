"""The documented mix, strategy by strategy: every figure of spec/batching.md 1 to 3, measured beside noted.

    python -m benchmarks.ordering.figures        # also draws runs/ordering/figures.png

A cell reads `measured (noted)`: the second is the specification's, of another implementation and other random
numbers. 905,600 samples, six edges, budget 49,152, cap 64, block budget off. Nothing here trains: loss levels
and costs are models. Orders are judged on the queues of the random-order packing, which has the published
counts; 5 seeds, means, and the worst where a maximum is meant.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.ordering import packings
from benchmarks.ordering.mix import ANCHORS, EDGES, LARGEST, documented_mix
from benchmarks.ordering.noted import (
    NOTED_BALANCE,
    NOTED_FLOOR,
    NOTED_RUN_SHARES,
    NOTED_RUNS,
    NOTED_TAIL,
    NOTED_WINDOWS,
)
from benchmarks.ordering.picture import PICTURE, draw
from benchmarks.ordering.table import beside, print_table
from dflash_lightning.plan import (
    Credit,
    DiversityFirst,
    Order,
    Plan,
    PlanConfig,
    PoolSorted,
    RandomOrder,
    Samples,
    Shuffle,
    plan_epoch,
    rng,
    summarize,
)
from dflash_lightning.plan.deal import batch_cost
from dflash_lightning.plan.judge.balance import QUADRATIC_LENGTH, judge_balance
from dflash_lightning.plan.judge.mix import judge_mix
from dflash_lightning.plan.judge.runs import judge_runs
from dflash_lightning.plan.samples import IntArray

SEEDS = range(5)
ORDERS: dict[str, Order] = {
    "shuffle": Shuffle(),
    "diversity_first": DiversityFirst(),
    "credit": Credit(),
}
DOCUMENTED = PlanConfig(edges=EDGES, max_block_tokens=0, packing=RandomOrder())
LOSS_OF_BUCKET = np.array([0.55, 1.0, 1.0, 1.0, 1.0, 1.6])
LOSS_NOISE = 0.05


def planned(samples: Samples, config: PlanConfig, seed: int = 0) -> Plan:
    return plan_epoch(samples, config, **ANCHORS, seed=seed, epoch=0)


def labels_of(counts: Sequence[int]) -> dict[str, list[IntArray]]:
    """Every order's labels for these queues, one row a seed."""
    keys = [rng.key(seed, 0, "order") for seed in SEEDS]
    return {name: [order.labels(counts, key=key) for key in keys] for name, order in ORDERS.items()}


def reproduction(samples: Samples) -> list[int]:
    """Section 1; returns the batches of each bucket."""
    facts = [summarize(planned(samples, DOCUMENTED, seed), samples) for seed in range(3)]
    first = facts[0]
    share = [bucket.batches / first.batches for bucket in first.buckets]
    rows = [bucket.samples / bucket.batches for bucket in first.buckets]
    fill = [bucket.tokens / bucket.padded_tokens for bucket in first.buckets]
    noted = zip((57_975, 57_967, 57_963), facts, strict=True)
    print_table(
        "Section 1: the documented mix",
        ["figure", "value"],
        [
            ["batches, seeds 0 to 2", ", ".join(beside(f.batches, note) for note, f in noted)],
            ["largest bucket, samples", beside(first.buckets[-1].samples / first.samples, 0.202)],
            ["largest bucket, batches", beside(share[-1], 0.523)],
            ["rows of a batch, first bucket", beside(rows[0], 63.08)],
            ["rows of a batch, last bucket", beside(rows[-1], 6.03)],
            ["padding efficiency", beside(first.padding_efficiency, 0.807)],
            ["batch shares of buckets 0 to 4", _row(share, (0.0748, 0.0711, 0.0893, 0.1116, 0.1302))],
            ["padding efficiency by bucket", _row(fill, (0.516, 0.861, 0.894, 0.912, 0.932, 0.769))],
        ],
    )
    return [bucket.batches for bucket in first.buckets]


def _row(values: Sequence[float], noted: Sequence[float]) -> str:
    return ", ".join(beside(value, note) for value, note in zip(values, noted, strict=False))


def runs(labels: dict[str, list[IntArray]]) -> None:
    """Section 2.1."""
    rows = []
    for name, seeds in labels.items():
        judged = [judge_runs(row, len(EDGES)) for row in seeds]
        longest = [run.longest_run for run in judged]
        values = (
            np.mean(longest),
            max(longest),
            np.mean([run.final_run for run in judged]),
            np.mean([run.equal_neighbours for run in judged]) / len(seeds[0]),
            np.mean([(row[: len(row) // 2] == LARGEST).mean() for row in seeds]),
            np.mean([(row[-(len(row) // 10) :] == LARGEST).mean() for row in seeds]),
            np.mean([judge_mix(row, len(EDGES), 4).lag for row in seeds]),
        )
        rows.append([name, *map(beside, values, NOTED_RUNS[name])])
    headings = ["longest run", "worst", "final run", "equal", "first half", "last tenth", "max |taken - t p|"]
    print_table("Section 2.1: runs and drift of the largest bucket", ["order", *headings], rows)


def run_shares(labels: dict[str, list[IntArray]]) -> None:
    """Section 2.1: in runs of which length the largest bucket's batches come."""
    rows = []
    for name, seeds in labels.items():
        counts = np.mean([judge_runs(row, len(EDGES)).largest_in_runs for row in seeds], axis=0)
        rows.append([name, *map(beside, counts / counts.sum(), NOTED_RUN_SHARES[name])])
    headings = ["1", "2", "3", "4", "5 to 9", "10 and more"]
    print_table("Section 2.1: batches of the largest bucket by run length", ["order", *headings], rows)


def tails(counts: Sequence[int]) -> None:
    """Section 2.2: the largest bucket at other shares, the others in proportion."""
    total, others = sum(counts), sum(counts[:-1])
    rows = []
    for share, noted in NOTED_TAIL.items():
        large = round(share * total)
        queues = [round(count * (total - large) / others) for count in counts[:-1]] + [large]
        ends = {}
        for name, order in ORDERS.items():
            found = [order.labels(queues, key=rng.key(seed, 0, "order")) for seed in SEEDS]
            ends[name] = np.mean([judge_runs(row, len(EDGES)).final_run for row in found])
        tail = ends["diversity_first"]
        others_end = [f"{ends[name]:.0f}" for name in ("shuffle", "credit")]
        rows.append([f"{share:.3f}", beside(tail, noted), f"{tail / sum(queues):.1%}", *others_end])
    headings = ["largest share", "diversity_first", "of the epoch", "shuffle", "credit"]
    print_table("Section 2.2: the final run, by the share of the largest bucket", headings, rows)


def windows(labels: dict[str, list[IntArray]]) -> None:
    """Section 2.3."""
    rows = []
    for name, seeds in labels.items():
        for size, floor in NOTED_FLOOR.items():
            judged = [judge_mix(row, len(EDGES), size) for row in seeds]
            values = (
                np.mean([mix.tv_mean for mix in judged]),
                max(mix.tv_max for mix in judged),
                np.mean([mix.single_bucket_share for mix in judged]),
                np.mean([loss_sd(row, size, seed) for seed, row in enumerate(seeds)]),
            )
            noted = NOTED_WINDOWS[name, size]
            least = beside(judged[0].tv_floor, floor)
            rows.append([name, str(size), *map(beside, values[:2], noted[:2]), least])
            rows[-1] += map(beside, values[2:], noted[2:])
    headings = ["window", "distance, mean", "worst", "floor", "one bucket only", "sd of the loss (model)"]
    print_table("Section 2.3: one optimizer window against the epoch", ["order", *headings], rows)


def loss_sd(labels: IntArray, size: int, seed: int) -> float:
    """Of the mean over a window, if a batch's loss were its bucket's level plus noise."""
    whole = len(labels) // size * size
    noise = np.random.default_rng(seed).normal(0, LOSS_NOISE, whole)
    return float((LOSS_OF_BUCKET[labels[:whole]] + noise).reshape(-1, size).mean(axis=1).std())


def balance(samples: Samples) -> None:
    """Section 2.4, with the quadratic cost known to the dealer."""
    config = replace(DOCUMENTED, quadratic_length=QUADRATIC_LENGTH, block_cost=0.0)
    found: dict[str, tuple[float, ...]] = {}
    for name, order in ORDERS.items():
        plan = planned(samples, replace(config, order=order))
        found[f"{name}, strided"] = strided(plan, config)
    dealt = judge_balance(plan, samples, config, world=8, accumulate=4)
    factors = dealt.linear, dealt.quadratic, dealt.micro_linear, dealt.micro_quadratic
    found["credit, dealt by cost"] = factors
    print_table(
        "Section 2.4: 8 ranks x 4, random-order packing: slowest rank / mean rank",
        ["order", "window, linear", "quadratic", "micro-step, linear", "quadratic"],
        [[name, *map(beside, values, NOTED_BALANCE[name])] for name, values in found.items()],
    )


def strided(plan: Plan, config: PlanConfig) -> tuple[float, ...]:
    """Straggler factors if batch i went to rank i mod 8, which is what a plain distributed sampler does."""
    whole = plan.num_batches // 32 * 32
    rows = np.diff(plan.offsets)[:whole]
    linear = (rows * plan.padded_length[:whole]).astype(np.float64)
    quadratic = batch_cost(rows, plan.padded_length[:whole], plan.block_tokens[:whole], config)
    loads = [cost.reshape(-1, 4, 8) for cost in (linear, quadratic)]
    per_window = [load.sum(axis=1) for load in loads]
    return tuple(float(load.max(axis=-1).sum() / load.mean(axis=-1).sum()) for load in (*per_window, *loads))


def block_budget(samples: Samples) -> None:
    """How much of the trouble with the order is left once the drafter's work is bounded, as by default."""
    rows = []
    for packing in (RandomOrder(), PoolSorted()):
        for budget in (0, PlanConfig().max_block_tokens):
            config = replace(DOCUMENTED, packing=packing, max_block_tokens=budget)
            batches = np.bincount(planned(samples, config).bucket)
            cells = [type(packing).__name__, f"{budget:,}" if budget else "off"]
            cells += [f"{batches.sum():,}", f"{batches.max() / batches.sum():.3f}"]
            for order in ORDERS.values():
                labels = order.labels(batches.tolist(), key=rng.key(0, 0, "order"))
                final = judge_runs(labels, len(EDGES)).final_run / len(labels)
                cells.append(f"{final:.2%}, {judge_mix(labels, len(EDGES), 4).tv_mean:.3f}")
            rows.append(cells)
    headings = ["packing", "block budget", "batches", "largest", *ORDERS]
    print_table("The block budget: final run, mean distance of windows of 4", headings, rows)


def main() -> None:
    samples = documented_mix()
    counts = reproduction(samples)
    labels = labels_of(counts)
    runs(labels)
    run_shares(labels)
    tails(counts)
    windows(labels)
    balance(samples)
    block_budget(samples)
    packings.print_all(samples)
    draw(labels)
    print(f"picture: {PICTURE}")


if __name__ == "__main__":
    main()
