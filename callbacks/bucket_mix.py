"""Which buckets training consumes, and how well batches are filled."""

from typing import Any

import numpy as np
from lightning import Callback, LightningModule, Trainer

from dflash_lightning.training.module import DFlashModule
from dflash_lightning.training.watch.bucket_counts import BucketCounts, FloatArray, by_bucket
from dflash_lightning.training.watch.epoch_mix import COLUMNS, EpochMix
from dflash_lightning.training.watch.log_pictures import log_figure, log_table


class BucketMix(Callback):
    """Logs the bucket mix of what was consumed (not of what was prefetched), summed over ranks.

    `batch/bucket_{i}_pct`: percent of batches from bucket i over the last `window_steps` optimizer steps
    (`..._pct_total` since the start; `bucket_{i}_samples_pct` and `bucket_{i}_tokens_pct` beside it).
    `batch/avg_seq_len`, `batch/max_seq_len`, `batch/batch_size`, `batch/padding_efficiency`: since the last
    log. `batch/mix_distance`: total variation between the mix of one window and the whole plan's (0 the same,
    1 disjoint), mean over the steps since the last log.

    Args:
        window_steps: Optimizer steps that the recent mix looks back on.
        epoch_picture: At the end of an epoch, log a table and a picture of its mix beside the plan's, as
            `bucket_mix/table` and `bucket_mix/picture`.
    """

    def __init__(self, window_steps: int = 100, epoch_picture: bool = True) -> None:
        if window_steps < 1:
            raise ValueError(f"BucketMix.window_steps must be at least 1, got {window_steps}")
        self.window_steps = window_steps
        self.epoch_picture = epoch_picture
        self._counts: BucketCounts | None = None
        self._epoch = EpochMix()
        self._loaded: dict[str, Any] | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        self._counts = BucketCounts(len(pl_module.data.edges), self.window_steps)
        self._epoch = EpochMix()
        if self._loaded:
            self._counts.load_state_dict(self._loaded["counts"])
            self._epoch.load_state_dict(self._loaded["epoch"])
            self._loaded = None  # for this run alone

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        plan = pl_module.data.epochs.plan(trainer.current_epoch)
        batches = np.bincount(plan.bucket, minlength=len(pl_module.data.edges))
        self._plan: FloatArray = batches / batches.sum()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, DFlashModule)
        if not pl_module.step_finished or pl_module.last_window is None or self._counts is None:
            return
        self._counts.add(pl_module.last_window, self._plan)
        counts = by_bucket(pl_module.last_window, self._counts.num_buckets)
        self._epoch.add(counts, epoch=trainer.current_epoch)
        if pl_module.log_now:
            pl_module.log_dict(self._counts.take())

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        if self.epoch_picture and self._epoch.epoch == trainer.current_epoch:
            plan, edges, mix = self._plan, pl_module.data.edges, self._epoch
            log_table(trainer, "bucket_mix/table", COLUMNS, mix.rows(plan, edges))
            log_figure(trainer, "bucket_mix/picture", lambda figure: mix.draw(figure, plan, edges))

    def state_dict(self) -> dict[str, Any]:
        return (
            {"counts": self._counts.state_dict(), "epoch": self._epoch.state_dict()} if self._counts else {}
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict
