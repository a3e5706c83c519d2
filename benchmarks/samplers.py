"""Samplers at equal work: one million lengths of the documented mix -> all batches of rank 0, world 1 and 8.

    python -m benchmarks.samplers                            # Lhotse on 100,000 of them: about a minute
    python -m benchmarks.samplers --lhotse-items 1000000     # Lhotse on all of them: some minutes a world

Ours is a plan, its windows of 4 batches a rank, and rank 0's share of each. Lhotse's DynamicBucketingSampler
gets the same bounds, budget and row cap, and shuffles; the rest are its defaults (buffer of 20,000).
Transformers' length-grouped samplers know a batch size only: 16 rows. Only the iteration is timed: items are
made before. Times are CPU seconds of one thread, which other work on the machine disturbs least: medians of
`--rounds` within one run, in turn; Lhotse runs once, after ours again on as many items.
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from transformers.trainer_pt_utils import DistributedLengthGroupedSampler, LengthGroupedSampler

from benchmarks.ordering.mix import ANCHORS, EDGES, documented_mix
from dflash_lightning.plan import PlanConfig, Samples, cut_windows, plan_epoch
from dflash_lightning.plan.samples import IntArray

CONFIG = PlanConfig(edges=EDGES, max_block_tokens=0)
"""Without a block budget, which the others do not have either."""
ACCUMULATE = 4
HF_ROWS = 16
WORLDS = (1, 8)
Batches = Sequence[Sequence[int] | IntArray]


def ours(samples: Samples, world: int) -> Batches:
    plan = plan_epoch(samples, CONFIG, **ANCHORS, seed=0, epoch=0)
    windows = cut_windows(plan, samples, CONFIG, 0, world=world, accumulate=ACCUMULATE)
    return [ranks[0].sample_ids for window in windows for ranks in window.batches]


def length_grouped(lengths: list[int], world: int) -> Batches:
    if world == 1:
        generator = torch.Generator().manual_seed(0)
        ids = list(LengthGroupedSampler(HF_ROWS, lengths=lengths, generator=generator))
    else:
        ids = list(DistributedLengthGroupedSampler(HF_ROWS, num_replicas=world, rank=0, lengths=lengths))
    return [ids[start : start + HF_ROWS] for start in range(0, len(ids), HF_ROWS)]


def lhotse(samples: Samples, world: int) -> tuple[Batches, float]:
    """Rank 0's batches, and the CPU seconds without making the items."""
    from lhotse import MonoCut
    from lhotse.dataset import DynamicBucketingSampler

    cuts = [MonoCut(str(i), 0, length, 0) for i, length in enumerate(samples.lengths.tolist())]
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = DynamicBucketingSampler(
            cuts,
            max_duration=CONFIG.max_tokens,
            max_cuts=CONFIG.max_rows,
            duration_bins=list(EDGES[:-1]),
            shuffle=True,
            world_size=world,
            rank=0,
        )
        batches = [[int(cut.id) for cut in batch] for batch in sampler]
    return batches, time.process_time() - begin


def timed(work: Callable[[], Batches]) -> tuple[Batches, float]:
    begin = time.process_time()
    batches = work()
    return batches, time.process_time() - begin


def facts(batches: Batches, samples: Samples) -> dict[str, float]:
    """What the batches are worth, padded to their longest row."""
    rows = np.array([len(batch) for batch in batches])
    lengths = samples.lengths[np.concatenate(batches)]
    starts = np.cumsum(rows) - rows
    padded = rows * np.maximum.reduceat(lengths, starts)
    return {
        "batches": len(batches),
        "samples": int(rows.sum()),
        "efficiency": float(lengths.sum() / padded.sum()),
        "over_budget": int((padded > CONFIG.max_tokens).sum()),
        "largest": int(padded.max()),
    }


def compare(samples: Samples, world: int, rounds: int) -> dict[str, dict[str, float]]:
    """Ours and Transformers', in turn, so that a busy moment meets both."""
    lengths = samples.lengths.tolist()
    work = {"ours": lambda: ours(samples, world), "length-grouped": lambda: length_grouped(lengths, world)}
    seconds: dict[str, list[float]] = {name: [] for name in work}
    found = {}
    for _ in range(rounds):
        for name, run in work.items():
            batches, spent = timed(run)
            seconds[name].append(spent)
            found[name] = facts(batches, samples)
    return {name: found[name] | {"seconds": statistics.median(seconds[name])} for name in work}


def against_lhotse(samples: Samples, world: int, rounds: int) -> tuple[dict[str, float], float]:
    """Lhotse's figures, and the seconds of ours for the same items."""
    reference = statistics.median(timed(lambda: ours(samples, world))[1] for _ in range(rounds))
    batches, seconds = lhotse(samples, world)
    return facts(batches, samples) | {"seconds": seconds}, reference


COLUMNS = "{:>5} {:<15} {:>10} {:>9} {:>8} {:>9} {:>10} {:>8} {:>12} {:>8}"
HEADINGS = ("world", "sampler", "items", "CPU s", "x ours", "batches", "samples", "fill", "over budget")


def print_row(world: int, name: str, items: int, row: dict[str, float], reference: float) -> None:
    ratio = row["seconds"] / reference
    print(
        COLUMNS.format(
            world,
            name,
            f"{items:,}",
            f"{row['seconds']:.2f}",
            f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}",
            f"{row['batches']:,}",
            f"{row['samples']:,}",
            f"{row['efficiency']:.4f}",
            f"{row['over_budget']:,}",
            f"{row['largest']:,}",
        ),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--lhotse-items", type=int, default=100_000, help="0: leave it out")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    samples = documented_mix(args.items)
    figures = []
    print(COLUMNS.format(*HEADINGS, "largest"))
    for world in WORLDS:
        rows = compare(samples, world, args.rounds)
        for name, row in rows.items():
            print_row(world, name, args.items, row, rows["ours"]["seconds"])
            figures.append({"world": world, "sampler": name, "items": args.items, **row})
        assert rows["ours"]["over_budget"] == 0, "a batch of ours is over the budget"
    for world in WORLDS if args.lhotse_items else ():
        row, reference = against_lhotse(documented_mix(args.lhotse_items), world, args.rounds)
        print_row(world, "Lhotse", args.lhotse_items, row, reference)
        figures.append({"world": world, "sampler": "Lhotse", "items": args.lhotse_items, **row})
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
