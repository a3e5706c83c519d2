"""SIGTERM and Ctrl-C: finish the optimizer step, save, stop; all ranks together."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, runtime_checkable

from lightning import LightningModule, Trainer
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.utilities import rank_zero_info

from dflash_lightning.training.module import DFlashModule

_NAMES = {signal.SIGTERM: "sigterm", signal.SIGINT: "sigint"}


class StoppedBySignal(SystemExit):
    """Leaves the run with the exit code that schedulers and shells expect: 143 (SIGTERM) or 130 (Ctrl-C)."""


@runtime_checkable
class StoresAtExit(Protocol):
    """A callback that stores the state by itself when a run is stopped."""

    @property
    def resume_uri(self) -> str:
        """What to give to --ckpt_path then."""


class StopOnSignal(Checkpoint):
    """Ends training after the current optimizer step (while it validates: after that) with a checkpoint, also
    when one rank alone is signalled.

    The handler only sets a flag, which travels with the sums that all ranks exchange at every optimizer
    step: a collective inside a handler hangs when one rank alone is signalled. A second signal stops at once.
    (A Checkpoint, so that Lightning runs it behind the callbacks whose state it saves.)

    Args:
        folder: Where the checkpoint goes; null: to S3Checkpoint's store where the run has that callback, else
            into `checkpoints` in the run's log folder.
        echo_seconds: Repeats within this time are echoes of one signal: torchrun hands on to its ranks what
            a terminal or scheduler has sent to them as well.
    """

    def __init__(self, folder: str | None = None, echo_seconds: float = 2.0) -> None:
        self.folder = folder
        self.echo_seconds = echo_seconds
        self._handle: Callable[[int, FrameType | None], None]
        self._leaving: StoppedBySignal | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        first: dict[int, float] = {}

        def handle(number: int, frame: FrameType | None) -> None:
            now = time.monotonic()
            if now - first.setdefault(number, now) > self.echo_seconds:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            pl_module.stop_votes[_NAMES[signal.Signals(number)]] = True

        self._handle = handle
        # Lightning is about to register its own for SIGTERM, which broadcasts: ours takes its place. (A plain
        # function instead of a bound method, which is what the checker minds.)
        trainer._signal_connector._sigterm_notifier_fn = handle  # type: ignore[method-assign,assignment]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """From here on Lightning puts back every handler when the run ends."""
        signal.signal(signal.SIGINT, self._handle)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, DFlashModule)
        votes = pl_module.last_totals
        if pl_module.step_finished and (votes.sigterm or votes.sigint):
            self._stop(trainer, pl_module, sigterm=votes.sigterm > 0)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """No step exchanges votes here, and the validation behind the last step is followed by none."""
        assert isinstance(pl_module, DFlashModule)
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        ours = pl_module.stop_votes
        agree = trainer.strategy.reduce_boolean_decision
        sigterm, sigint = (agree(ours[name], all=False) for name in ("sigterm", "sigint"))
        if sigterm or sigint:
            self._stop(trainer, pl_module, sigterm=sigterm)
            self._leave()

    def _stop(self, trainer: Trainer, pl_module: DFlashModule, *, sigterm: bool) -> None:
        name, code = ("SIGTERM", 143) if sigterm else ("Ctrl-C", 130)
        rank_zero_info(f"stopped by {name}; resume with --ckpt_path {self._save(trainer, pl_module)}")
        self._leaving = StoppedBySignal(0 if _is_child_of_lightning(trainer) else code)

    def _save(self, trainer: Trainer, pl_module: DFlashModule) -> Path | str:
        """What to resume from."""
        stored = [c.resume_uri for c in trainer.checkpoint_callbacks if isinstance(c, StoresAtExit)]
        if stored and self.folder is None:
            return stored[0]
        folder = Path(self.folder or Path(trainer.log_dir or trainer.default_root_dir) / "checkpoints")
        path = folder / f"stopped-step={pl_module.data.position.steps}.ckpt"
        trainer.save_checkpoint(path)
        return path

    def _leave(self, *_: Any) -> None:
        """At the first hook behind the step's own log, so that a resumed run has every row."""
        if self._leaving:
            raise self._leaving

    # One function for three hooks of different signatures, none of whose arguments it reads.
    on_train_batch_start = _leave  # type: ignore[assignment]
    on_validation_start = _leave  # type: ignore[assignment]
    on_train_epoch_end = _leave  # type: ignore[assignment]


def _is_child_of_lightning(trainer: Trainer) -> bool:
    """True where Lightning's own launcher started this process: another exit code than 0 would make it kill
    the main process, whose code is the one that a user's shell sees."""
    environment = trainer._accelerator_connector.cluster_environment
    return isinstance(environment, LightningEnvironment) and environment.local_rank() > 0
