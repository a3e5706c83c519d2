"""SIGTERM and Ctrl-C: finish the optimizer step, save, stop; all ranks together."""

import os
import signal
from pathlib import Path
from types import FrameType
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.utilities import rank_zero_info

from dflash_lightning.training.module import DFlashModule

_NAMES = {signal.SIGTERM: "sigterm", signal.SIGINT: "sigint"}


class StoppedBySignal(SystemExit):
    """Leaves the run with the exit code that schedulers and shells expect: 143 (SIGTERM) or 130 (Ctrl-C)."""


class StopOnSignal(Checkpoint):
    """Ends training after the current optimizer step with a checkpoint, also when one rank alone is
    signalled.

    The handler only sets a flag, which travels with the sums that all ranks exchange at every optimizer
    step: a
    collective inside a signal handler hangs when one rank alone is signalled. A second signal stops at once.
    (A Checkpoint, so that Lightning runs it behind the callbacks whose state it saves.)

    Args:
        folder: Where the checkpoint goes; null: `checkpoints` in the run's log folder.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self._previous: dict[signal.Signals, Any] = {}
        self._leaving: StoppedBySignal | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)

        def handle(number: int, frame: FrameType | None) -> None:
            name = _NAMES[signal.Signals(number)]
            if pl_module.stop_votes[name]:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            pl_module.stop_votes[name] = True

        for number in _NAMES:
            self._previous[number] = signal.signal(number, handle)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, DFlashModule)
        votes = pl_module.last_totals
        if not pl_module.step_finished or not (votes.sigterm or votes.sigint):
            return
        folder = Path(self.folder or Path(trainer.log_dir or trainer.default_root_dir) / "checkpoints")
        path = folder / f"stopped-step={pl_module.data.position.steps}.ckpt"
        trainer.save_checkpoint(path)
        name, code = ("SIGTERM", 143) if votes.sigterm else ("Ctrl-C", 130)
        rank_zero_info(f"stopped by {name}; resume with --ckpt_path {path}")
        self._leaving = StoppedBySignal(code)

    # The first hook behind the step's own log, whichever it is: so a resumed run has every row.

    def on_train_batch_start(self, *_: Any) -> None:
        self._leave()

    def on_validation_start(self, *_: Any) -> None:
        self._leave()

    def on_train_epoch_end(self, *_: Any) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._leaving:
            raise self._leaving

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
