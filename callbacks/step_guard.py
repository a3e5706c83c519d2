"""How many optimizer steps were skipped because their gradient was not finite."""

from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info

from dflash_lightning.training.module import DFlashModule
from dflash_lightning.training.step_guard import skipped_steps_path


class StepGuard(Callback):
    """Logs `guard/skipped_steps`, skipped optimizer steps since the run began, and `guard/skipped_in_a_row`,
    the longest row of them that reached into the steps since the last log. At the end of the run it says how
    many there were, and where the samples are written.

    Skipping itself is not a callback's business: training does it, with or without this one.
    """

    def __init__(self) -> None:
        self._in_a_row = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        if not pl_module.data.position.steps:  # nothing of a run before, if one object serves several
            self._in_a_row = 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, DFlashModule)
        if not pl_module.step_finished:
            return
        guard = pl_module.guard
        self._in_a_row = max(self._in_a_row, guard.in_a_row)
        if pl_module.log_now:
            counts = {"guard/skipped_steps": guard.total, "guard/skipped_in_a_row": self._in_a_row}
            pl_module.log_dict({name: float(count) for name, count in counts.items()})
            self._in_a_row = 0

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        if total := pl_module.guard.total:
            path = skipped_steps_path(pl_module)
            rank_zero_info(f"{total} optimizer steps had no finite gradient and were skipped: see {path}")

    def state_dict(self) -> dict[str, Any]:
        return {"in_a_row": self._in_a_row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._in_a_row = state_dict["in_a_row"]
