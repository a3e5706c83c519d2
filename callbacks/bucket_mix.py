"""Which buckets training consumes, and how well batches are filled."""

from typing import Any

from lightning import Callback, LightningModule, Trainer

from dflash_lightning.training.bucket_counts import BucketCounts
from dflash_lightning.training.module import DFlashModule


class BucketMix(Callback):
    """Logs the bucket mix of what was consumed (not of what was prefetched), summed over ranks.

    `batch/bucket_{i}_pct`: percent of batches from bucket i over the last `window_steps` optimizer steps
    (`..._pct_total` since the start; `bucket_{i}_samples_pct` and `bucket_{i}_tokens_pct` beside it).
    `batch/avg_seq_len`, `batch/max_seq_len`, `batch/batch_size`, `batch/padding_efficiency`: since the last
    log.

    Args:
        window_steps: Optimizer steps that the recent mix looks back on.
    """

    def __init__(self, window_steps: int = 100) -> None:
        if window_steps < 1:
            raise ValueError(f"BucketMix.window_steps must be at least 1, got {window_steps}")
        self.window_steps = window_steps
        self._counts: BucketCounts | None = None
        self._loaded: dict[str, Any] | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        self._counts = BucketCounts(len(pl_module.data.edges), self.window_steps)
        if self._loaded:
            self._counts.load_state_dict(self._loaded)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, DFlashModule)
        if not pl_module.step_finished or pl_module.last_window is None or self._counts is None:
            return
        self._counts.add(pl_module.last_window)
        if pl_module.log_now:
            pl_module.log_dict(self._counts.take())

    def state_dict(self) -> dict[str, Any]:
        return self._counts.state_dict() if self._counts else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict
