"""How much the window loss of a fixed drafter scatters in each strategy: measured losses, no training noise.

    python -m benchmarks.ordering.window_loss [--drafter runs/ordering/credit-0.pt] [--epochs 20]

Every chat's loss is measured once, with a drafter that train.py left; then the plans of many epochs put the
chats into windows. What differs between strategies is the composition of the windows alone. The specification
does the same with assumed levels (.55, 1.0, 1.6) on the documented mix.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.ordering.bench import BLOCKS, FOLDER, PLAN, STRATEGIES, Bench, matched, open_bench
from benchmarks.ordering.run import Run
from benchmarks.ordering.table import print_table
from dflash_lightning.data.collate import AnchorRule, BatchDataset
from dflash_lightning.plan import PlanConfig, WindowFirst, cut_windows, plan_epoch

FloatArray = npt.NDArray[np.float64]
SIZES = (4, 8, 32)


@torch.no_grad()
def sample_sums(bench: Bench, run: Run) -> FloatArray:
    """[samples, 2]: sum of weight x loss, and of the weights, over each chat's anchors."""
    rule = AnchorRule(BLOCKS["num_anchors"], "batch_max", 0, 0)
    data = BatchDataset(bench.store, "train", rule, pad_token_id=0)
    plan = plan_epoch(bench.samples, PLAN, **BLOCKS, seed=0, epoch=0)
    sums = np.empty((len(bench.samples), 2))
    for window in cut_windows(plan, bench.samples, PLAN, 0, world=1, accumulate=1):
        batch = data[window.batches[0][0]]
        outcome = run.draft(batch, "train")
        numerator, weight = (
            (t.double().sum((1, 2))) for t in (outcome.loss * outcome.weight, outcome.weight)
        )
        sums[batch.sample_ids.numpy()] = torch.stack((numerator, weight), dim=1).numpy()
    return sums


def window_losses(bench: Bench, sums: FloatArray, config: PlanConfig, size: int, epochs: int) -> FloatArray:
    """Weighted mean loss of every full window of `size` batches, epoch after epoch."""
    losses = []
    for epoch in range(epochs):
        plan = plan_epoch(bench.samples, config, **BLOCKS, seed=0, epoch=epoch)
        per_batch = np.add.reduceat(sums[plan.sample_ids], plan.offsets[:-1])
        whole = plan.num_batches // size * size
        windows = per_batch[:whole].reshape(-1, size, 2).sum(axis=1)
        losses.append(windows[:, 0] / windows[:, 1])
    return np.concatenate(losses)


def print_buckets(bench: Bench, sums: FloatArray) -> None:
    plan = plan_epoch(bench.samples, PLAN, **BLOCKS, seed=0, epoch=0)
    bucket = np.empty(len(bench.samples), np.int64)
    bucket[plan.sample_ids] = np.repeat(plan.bucket, np.diff(plan.offsets))
    mean = sums[:, 0] / np.maximum(sums[:, 1], 1e-9)
    rows = []
    for i, edge in enumerate(plan.edges):
        mine = (bucket == i) & (sums[:, 1] > 0)
        level = sums[mine, 0].sum() / sums[mine, 1].sum()
        rows.append([f"up to {edge}", f"{mine.sum()}", f"{(plan.bucket == i).mean():.1%}"])
        rows[-1] += [f"{level:.3f}", f"{mean[mine].std():.3f}", f"{sums[mine, 1].mean():.1f}"]
    headings = ["tokens", "chats", "batches", "loss", "sd between chats", "weight of a chat"]
    print_table("Loss of the chats by bucket", headings, rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--drafter", type=Path, default=FOLDER / "credit-0.pt")
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    bench = open_bench()
    run = Run(bench, PLAN, seed=0)
    run.drafter.load_state_dict(torch.load(args.drafter))
    sums = sample_sums(bench, run)
    print_buckets(bench, sums)
    rows = []
    for name, config in STRATEGIES.items():
        cells = []
        for size in SIZES:
            fitting = config
            if isinstance(config.packing, WindowFirst):
                fitting = replace(config, packing=WindowFirst(window_batches=size))
            if config.packing != PLAN.packing:
                fitting = matched(fitting, bench.samples)
            cells.append(f"{window_losses(bench, sums, fitting, size, args.epochs).std():.4f}")
        rows.append([name, *cells])
    headings = ["strategy", *(f"{size} batches" for size in SIZES)]
    print_table(f"sd of the window loss, one drafter, {args.epochs} epochs of windows", headings, rows)


if __name__ == "__main__":
    main()
