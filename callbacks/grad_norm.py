"""The gradient norm before clipping; after clipping it would be a constant."""

import math
from typing import Any

from lightning import Callback, LightningModule, Trainer

from dflash_lightning.training.module import DFlashModule


class GradNorm(Callback):
    """Logs `train/grad_norm`, the mean global norm before clipping, and `train/clipped_pct`, the percent of
    steps that were clipped, over all optimizer steps since the last log. Skipped steps are in neither.

    It reads what normalisation and clipping computed: no second pass over the gradients.
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {"steps": 0, "norm": 0.0, "clipped": 0}

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, DFlashModule)
        step = pl_module.last_step
        if not pl_module.step_finished or step is None:
            return
        if not step.skipped:
            self._sums["steps"] += 1
            self._sums["norm"] += step.norm
            self._sums["clipped"] += step.clip_factor < 1
        if pl_module.log_now:
            steps = self._sums["steps"]
            norm = self._sums["norm"] / steps if steps else math.nan
            clipped = 100.0 * self._sums["clipped"] / steps if steps else math.nan
            pl_module.log_dict({"train/grad_norm": norm, "train/clipped_pct": clipped})
            self._sums = {"steps": 0, "norm": 0.0, "clipped": 0}

    def state_dict(self) -> dict[str, Any]:
        return dict(self._sums)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._sums = dict(state_dict)
