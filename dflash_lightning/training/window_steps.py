"""One optimizer step a window, whatever is trained: rate, normalisation, step guard, cursor, what is shown.

in    micro-batches added to `window_sums` by training_step, their numerators' gradients
out   `last_step`, `last_totals` and `last_window` for callbacks
law   nothing here knows a model: a subclass brings parameters and training_step
"""

from collections.abc import Callable
from typing import Any

import torch
from lightning import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor

from dflash_lightning.data.datamodule import DFlashDataModule
from dflash_lightning.data.window_facts import WindowFacts, window_facts
from dflash_lightning.training.logged_totals import LoggedTotals
from dflash_lightning.training.normalize import StepRecord, normalize_gradients, raw_norm
from dflash_lightning.training.optimizer import AdamWConfig
from dflash_lightning.training.step_guard import SkipCounter, report_skipped
from dflash_lightning.training.window_sums import WindowSums, WindowTotals


class WindowSteps(LightningModule):
    """A LightningModule whose every optimizer step is one window of the plan."""

    def __init__(self, optimizer: AdamWConfig, *, max_skipped_steps: int) -> None:
        super().__init__()
        self.optimizer_config = optimizer
        self.guard = SkipCounter(max_skipped_steps)
        self.window_sums = WindowSums()
        self.logged = LoggedTotals()
        votes = ("sigterm", "sigint", "storage", "busy", "save")
        self.stop_votes = dict.fromkeys(votes, False)
        self.last_step: StepRecord | None = None
        self.last_totals = WindowTotals()
        self.last_window: WindowFacts | None = None

    @property
    def data(self) -> DFlashDataModule:
        """The DataModule that holds the plan and the cursor."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]  # set by Trainer.fit
        if not isinstance(data, DFlashDataModule):
            raise TypeError(f"a plan is trained from a DFlashDataModule, got {type(data).__name__}")
        return data

    def setup(self, stage: str) -> None:
        self.window_sums = WindowSums(len(self.data.edges))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer_config.build(self)

    def on_train_start(self) -> None:
        self.horizon = self.data.horizon()

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: torch.optim.Optimizer | LightningOptimizer,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        self.last_lr = self.optimizer_config.apply(optimizer, self.data.share_done(self.horizon))
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        assert self.last_step is not None
        window = self.data.finish_window(applied=not self.last_step.skipped)
        self.last_window = window_facts(window, self.data.epochs.samples.lengths)
        if self.last_totals.non_finite:
            report_skipped(self, window)
        else:
            self.guard.passed()
            self.logged.add(self.last_totals, self.last_window)
        self.window_sums.clear()
        self.due = self.logged.take() if self.log_now else {}

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Sum the window over ranks, then normalise, check and clip in one place (spec/dflash.md 2.6.1)."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norm = raw_norm(parameters).to(self.device)
        self.last_totals = self.window_sums.finish(norm, self.stop_votes, self._sum_over_ranks)
        self.last_step = normalize_gradients(
            parameters,
            norm=norm.item(),
            non_finite=self.last_totals.non_finite > 0,
            weight=self.last_totals.weight,
            world=self.trainer.world_size,
            accumulate=self.trainer.accumulate_grad_batches,
            max_norm=gradient_clip_val,
            step=self.data.position.steps + 1,
        )

    def _sum_over_ranks(self, tensor: Tensor) -> Tensor:
        summed = self.trainer.strategy.reduce(tensor, reduce_op="sum")
        assert isinstance(summed, Tensor)
        return summed

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Values cover all optimizer steps since the last log; never a single micro-batch."""
        if not self.step_finished:
            return
        assert self.last_step is not None
        shown = self.last_totals.ratios()
        self.log("loss", shown["train/loss"], prog_bar=True, logger=False)
        self.log("tau", shown["train/tau"], prog_bar=True, logger=False)
        self.log("tok/s", self.logged.tokens_per_second(), prog_bar=True, logger=False)
        if self.due:
            self.log_dict({**self.due, "train/lr": self.last_lr, "train/step": float(self.last_step.step)})

    @property
    def log_now(self) -> bool:
        """True where the step just finished completes a logging interval."""
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]  # set by a connector
        return every > 0 and self.data.position.steps % every == 0

    @property
    def step_finished(self) -> bool:
        """True from an optimizer step to the next micro-batch: when callbacks should read last_step."""
        return not self.window_sums.losses
