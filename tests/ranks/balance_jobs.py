"""Pipelines of many ranks, looked at together: without a trainer, and in one."""

import os
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from lightning import Callback

from dflash_lightning.callbacks.prefetch_balance import PrefetchBalance
from dflash_lightning.target.balance.depth import DepthBounds
from dflash_lightning.target.balance.interval import IntervalSums
from dflash_lightning.target.balance.slow_rank import SlowRule
from dflash_lightning.target.dispatch import PrefetchPolicy
from dflash_lightning.target.pipeline import TargetPipeline
from dflash_lightning.target.pipeline_queues import BatchCost
from dflash_lightning.training.prefetch.prefetch_watch import PrefetchWatch
from tests.ranks import jobs

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.ranks.balance_jobs"])


@dataclass(frozen=True)
class Plain:
    """What every rank of `meet` runs."""

    world: int
    slow: int
    """The rank whose target takes four times as long."""
    step: float
    """Seconds of an optimizer step; the target of the others needs half of it."""
    logs: int
    steps: int
    """From log to log."""


def meet(folder: Path, plan: Plain, *, patience: float) -> list[dict[str, Any]]:
    """One process a rank, forked from one that has imported everything; what each of them saw."""
    ranks = [_CONTEXT.Process(target=_rank, args=(folder, plan, rank)) for rank in range(plan.world)]
    for rank in ranks:
        rank.start()
    deadline = time.monotonic() + patience
    try:
        for rank in ranks:
            rank.join(max(0.0, deadline - time.monotonic()))
        assert [rank.exitcode for rank in ranks] == [0] * plan.world
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(plan.world)]


def _rank(folder: Path, plan: Plain, rank: int) -> None:
    """Plain DDP with one device a rank: at every step all ranks meet, at every log one row is gathered."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=plan.world
    )
    calls = 0

    def gather(row):
        nonlocal calls
        calls += 1
        rows = torch.zeros(plan.world, len(row), dtype=torch.float64)
        rows[rank] = torch.tensor(row, dtype=torch.float64)
        torch.distributed.all_reduce(rows)
        return rows.tolist()

    seconds = plan.step * (2.0 if rank == plan.slow else 0.5)
    cost = BatchCost(tokens=100, bucket=0, bytes=1)
    pipeline = TargetPipeline(
        [lambda batch: time.sleep(seconds)], cost=lambda batch: cost, policy=PrefetchPolicy(depth=2)
    )
    watch = PrefetchWatch(DepthBounds(), SlowRule(), depth=2, states_from="drafter's device")
    sums, logged, said = IntervalSums(1), [], []
    total = plan.logs * plan.steps
    with pipeline.run(range(total), [1] * total) as pairs:
        sums.go_on(pipeline.counters())
        since = time.perf_counter()
        for step, _ in enumerate(pairs, start=1):
            time.sleep(plan.step)
            torch.distributed.barrier()  # gradients are averaged
            before, since = since, time.perf_counter()
            sums.step(pipeline.counters(), since - before)
            if step % plan.steps == 0:
                values, lines = watch.look(sums.take(), gather)
                logged.append(values)
                said += lines
    torch.save(
        {"logged": logged, "said": said, "calls": calls, "depth": watch.depth.depth}, folder / f"{rank}.pt"
    )
    torch.distributed.destroy_process_group()


# --- in a trainer


class Seen(Callback):
    """The values of prefetch/* on this rank, and how often ranks talked."""

    def __init__(self) -> None:
        self.values: list[dict[str, float]] = []
        self.depths: list[int] = []
        self.talks = 0

    def on_train_start(self, trainer, pl_module):
        usual = trainer.strategy.reduce

        def reduce(*args, **options):
            self.talks += 1
            return usual(*args, **options)

        trainer.strategy.reduce = reduce

    def on_train_batch_end(self, trainer, pl_module, *_):
        if pl_module.step_finished and pl_module.log_now:
            found = {n: float(v) for n, v in trainer.callback_metrics.items() if n.startswith("prefetch/")}
            self.values.append(found)
            self.depths.append(pl_module.pipeline.policy.depth)


def fit(
    root: str, target: str, store: str, *, balance: dict[str, Any] | None, **options: Any
) -> dict[str, Any]:
    """jobs.fit with three target devices a rank; with PrefetchBalance unless `balance` is None."""
    seen = Seen()
    extra = [PrefetchBalance(**balance)] if balance is not None else []
    found = jobs.fit(root, target, store, module={"target_devices": 3}, extra=[*extra, seen], **options)
    return {
        **found,
        "rank": int(os.environ["RANK"]),
        "values": seen.values,
        "depths": seen.depths,
        "talks": seen.talks,
    }
