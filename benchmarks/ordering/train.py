"""Train the demo's drafter in several batch orders: same data, tokens and steps. Does the order matter?

    python -m benchmarks.ordering.train --seeds 0 1 2          # appends to runs/ordering/results.jsonl
    python -m benchmarks.ordering.train --summarize            # the tables

The target's hidden states of all chats are computed once and kept, so that a run trains the drafter alone.
The step is DFlashModule's own (draft_blocks, window sums, normalize_gradients, AdamWConfig) in a plain loop:
bf16 autocast, window of 4 batches, one process. The seed decides weights, order and anchors.

Strategies with another packing than the default's need another number of batches for the same chats. Their
token budget is moved until they need as many, so that every strategy makes the same steps on the same tokens.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.ordering.report import print_report
from benchmarks.ordering.states import CachedStates, cached_states
from dflash_lightning.data.collate import AnchorRule, BatchDataset
from dflash_lightning.data.store import TokenStore
from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.main import main as cli
from dflash_lightning.objective.kinds import CrossEntropy
from dflash_lightning.plan import (
    DiversityFirst,
    PlanConfig,
    RandomOrder,
    Samples,
    Shuffle,
    Window,
    WindowFirst,
    cut_windows,
    plan_batches_count,
    plan_epoch,
)
from dflash_lightning.target.embedded import EMBEDDED
from dflash_lightning.target.loading import Target, load_config, load_target, load_tokenizer
from dflash_lightning.training.build import DrafterShape, drafter_config
from dflash_lightning.training.forward import BlockOutcome, draft_blocks
from dflash_lightning.training.normalize import normalize_gradients, raw_norm
from dflash_lightning.training.optimizer import AdamWConfig
from dflash_lightning.training.validation import ValidationSums
from dflash_lightning.training.window_sums import WindowSums

STORE = Path("data/demo")
FOLDER = Path("runs/ordering")
TAPS = (9, 27)
ACCUMULATE = 4
BLOCKS = {"num_anchors": 8, "block_size": 4}
OBJECTIVE = CrossEntropy(gamma=1.0)
OPTIMIZER = AdamWConfig(lr=1e-3, warmup_fraction=0.05)
MAX_NORM = 1.0
PLAN = PlanConfig(edges=(64, 88, 112, 144, 196, 704), max_tokens=704, max_rows=8, max_block_tokens=0)
"""Six buckets, the last one with half of the batches, as in the documented mix; its block budget is off."""
STRATEGIES = {
    "credit": PLAN,
    "diversity_first": replace(PLAN, order=DiversityFirst()),
    "shuffle": replace(PLAN, order=Shuffle()),
    "documented": replace(PLAN, order=DiversityFirst(), packing=RandomOrder()),
    "window_first": replace(PLAN, packing=WindowFirst(window_batches=ACCUMULATE)),
}


@dataclass(frozen=True)
class Bench:
    """What all runs share."""

    target: Target
    store: TokenStore
    drafter: DrafterConfig
    states: dict[str, CachedStates]
    samples: Samples


def open_bench() -> Bench:
    if not STORE.exists():
        cli(["prepare", "--input", "examples/demo/chats.jsonl", "--target", EMBEDDED, "--output", str(STORE)])
    target, store = load_target(EMBEDDED, dtype=torch.bfloat16), TokenStore.open(STORE)
    shape = DrafterShape(num_layers=2, target_layer_ids=list(TAPS))
    config = drafter_config(
        load_config(EMBEDDED),
        load_tokenizer(EMBEDDED),
        shape,
        block_size=BLOCKS["block_size"],
        mask_token=5,
    )
    states = cached_states(FOLDER / "states.pt", target, store, TAPS)
    return Bench(target, store, config, states, store.samples("train"))


def matched(config: PlanConfig, samples: Samples) -> PlanConfig:
    """`config` with the token budget that makes about as many batches of the first epoch as PLAN does."""

    def batches(max_tokens: int) -> int:
        changed = replace(config, max_tokens=max_tokens)
        return plan_batches_count(samples, changed, **BLOCKS, seed=0, epoch=0)

    wanted = plan_batches_count(samples, PLAN, **BLOCKS, seed=0, epoch=0)
    budgets = range(PLAN.max_tokens, 2 * PLAN.max_tokens, 8)
    return replace(config, max_tokens=min(budgets, key=lambda budget: abs(batches(budget) - wanted)))


class Run:
    """One drafter, one strategy, one seed."""

    def __init__(self, bench: Bench, config: PlanConfig, seed: int) -> None:
        self.bench = bench
        self.seed = seed
        self.config = config
        self.drafter = DFlashDrafter(bench.drafter, seed=seed)
        self.parameters = list(self.drafter.parameters())
        self.optimizer = OPTIMIZER.build(self.drafter)
        self.sums = WindowSums()
        self.gradient: Tensor | None = None
        """Of the window before, of length 1."""

    def windows(self, epochs: int) -> Iterator[tuple[int, Window, float]]:
        """(epoch, window, share of the run that is done in its middle)."""
        plans = [
            plan_epoch(self.bench.samples, self.config, **BLOCKS, seed=self.seed, epoch=epoch)
            for epoch in range(epochs)
        ]
        horizon, before = sum(plan.num_batches for plan in plans), 0
        for plan in plans:
            for window in cut_windows(
                plan, self.bench.samples, self.config, 0, world=1, accumulate=ACCUMULATE
            ):
                yield plan.epoch, window, (before + (window.start + window.stop) / 2) / horizon
            before += plan.num_batches

    def train(self, epochs: int) -> dict[str, Any]:
        begin, steps, validations = time.perf_counter(), [], []
        last = -1
        for epoch, window, share_done in self.windows(epochs):
            if epoch != last and last >= 0:
                validations.append(self.validate())
            last = epoch
            steps.append(self.step(epoch, window, share_done, len(steps) + 1))
        validations.append(self.validate())
        columns = {name: [step[name] for step in steps] for name in steps[0]}
        return {
            "steps": len(steps),
            "max_tokens": self.config.max_tokens,
            "seconds": round(time.perf_counter() - begin, 1),
            "validations": validations,
            **columns,
        }

    def step(self, epoch: int, window: Window, share_done: float, number: int) -> dict[str, Any]:
        rule = AnchorRule(BLOCKS["num_anchors"], "batch_max", self.seed, epoch)
        data = BatchDataset(self.bench.store, "train", rule, pad_token_id=0)
        batches = [ranks[0] for ranks in window.batches]
        rate = OPTIMIZER.apply(self.optimizer, share_done)
        self.optimizer.zero_grad()
        for batch in batches:
            outcome = self.draft(data[batch], "train")
            self.sums.add(outcome)
            (outcome.numerator / len(batches)).backward()
        norm = raw_norm(self.parameters)
        totals = self.sums.finish(norm, (False, False), lambda tensor: tensor)
        self.sums.clear()
        record = normalize_gradients(
            self.parameters,
            norm=norm.item(),
            non_finite=False,
            weight=totals.weight,
            world=1,
            accumulate=len(batches),
            max_norm=MAX_NORM,
            step=number,
        )
        cosine = self.cosine_with_the_window_before()
        self.optimizer.step()
        return {
            "loss": round(totals.loss / totals.weight, 5),
            "weight": round(totals.weight, 2),
            "norm": round(record.norm, 5),
            "cosine": cosine,
            "rate": rate,
            "buckets": [batch.bucket for batch in batches],
            "rows": sum(len(batch.sample_ids) for batch in batches),
        }

    def draft(self, batch: Any, split: str) -> BlockOutcome:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return draft_blocks(
                batch,
                self.bench.states[split].of(batch),
                target=self.bench.target,
                drafter=self.drafter,
                objective=OBJECTIVE,
                head_chunk=512,
            )

    def cosine_with_the_window_before(self) -> float | None:
        """Of the full gradients."""
        gradient = torch.cat([p.grad.flatten() for p in self.parameters if p.grad is not None])
        gradient /= gradient.norm()
        cosine = None if self.gradient is None else round(float(gradient @ self.gradient), 5)
        self.gradient = gradient
        return cosine

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """All anchors of all held-out chats."""
        samples = self.bench.store.samples("validation")
        plan = plan_epoch(samples, PLAN, **BLOCKS, seed=0, epoch=0)
        rule = AnchorRule(None, "batch_max", 0, 0)
        data = BatchDataset(self.bench.store, "validation", rule, pad_token_id=0)
        sums = ValidationSums(BLOCKS["block_size"])
        for window in cut_windows(plan, samples, PLAN, 0, world=1, accumulate=1):
            sums.update(self.draft(data[window.batches[0][0]], "validation"))
        return {name: round(float(value), 5) for name, value in sums.ratios().items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--results", type=Path, default=FOLDER / "results.jsonl")
    parser.add_argument("--summarize", action="store_true", help="print the tables of what is there")
    args = parser.parse_args()
    done = read_results(args.results)
    if not args.summarize:
        torch.set_num_threads(1)
        bench = open_bench()
        for seed in args.seeds:
            for name in args.strategies:
                key = {"strategy": name, "seed": seed, "epochs": args.epochs}
                if not any(key.items() <= run.items() for run in done):
                    config = STRATEGIES[name]
                    config = config if config.packing == PLAN.packing else matched(config, bench.samples)
                    run = Run(bench, config, seed)
                    done.append(key | run.train(args.epochs))
                    torch.save(run.drafter.state_dict(), args.results.parent / f"{name}-{seed}.pt")
                    append(args.results, done[-1])
    print_report(done)


def read_results(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(result) + "\n")
    print(
        f"{result['strategy']} seed {result['seed']}: {result['steps']} steps, {result['seconds']} s, "
        f"loss {result['loss'][-1]}, held-out {result['validations'][-1]}",
        flush=True,
    )


if __name__ == "__main__":
    main()
