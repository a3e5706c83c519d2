"""One drafter trained in one order: DFlashModule's step in a plain loop, on cached hidden states.

in    Bench, PlanConfig, seed
out   per step: loss, gradient norm before clipping, cosine with the gradient before; held-out values
law   losses and norms are those of DFlashModule under Lightning, but for bf16 rounding of the target's states
"""

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.ordering.bench import ACCUMULATE, BLOCKS, MAX_NORM, OBJECTIVE, OPTIMIZER, PLAN, Bench
from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.data.collate import AnchorRule, BatchDataset
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.plan import PlanConfig, Window, cut_windows, plan_epoch
from dflash_lightning.training.forward import BlockOutcome, draft_blocks
from dflash_lightning.training.normalize import normalize_gradients, raw_norm
from dflash_lightning.training.validation import ValidationSums
from dflash_lightning.training.window_sums import WindowSums


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
        begin, last = time.perf_counter(), -1
        steps: list[dict[str, Any]] = []
        validations = []
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
        totals = self.sums.finish(norm, {}, lambda tensor: tensor)
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

    def draft(self, batch: TokenBatch, split: str) -> BlockOutcome:
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
