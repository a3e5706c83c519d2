"""Checkpoints in a bucket or folder, without a step that waits for them."""

from contextlib import suppress
from functools import partial
from typing import Any, Literal
from uuid import uuid4

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities import rank_zero_warn
from lightning.pytorch.utilities.exceptions import SIGTERMException

from dflash_lightning.callbacks.signals import StoppedBySignal
from dflash_lightning.checkpoint.job import Mode, Retention
from dflash_lightning.checkpoint.keeping.cadence import Cadence, among_best
from dflash_lightning.checkpoint.resuming.resume import is_same_place
from dflash_lightning.checkpoint.session import Memory, Session
from dflash_lightning.checkpoint.stores.settings import StoreSettings
from dflash_lightning.training.checkpoints.address_connector import fetch_addresses
from dflash_lightning.training.checkpoints.checkpoint_state import value_of
from dflash_lightning.training.checkpoints.saves import CheckpointsLost, Saves, open_saves, prepare_saves
from dflash_lightning.training.module import DFlashModule


class S3Checkpoint(Checkpoint):
    """Saves the whole training state at optimizer steps: a copy in memory, everything else in the background.
    `--ckpt_path` with the same address, or `last`, goes on from the newest. Logs, on rank 0:

        checkpoint/blocked_s        seconds that training stood still since the last log, for copies and,
                                    once, for taking their memory
        checkpoint/durable_after_s  seconds from the copy to the store, of the newest that is there
        checkpoint/queue            saves that are not durable yet
        checkpoint/bytes            stored, over the whole run, like the counts below
        checkpoint/coalesced        saves that newer ones replaced while they waited
        checkpoint/refused          saves that found no room and were not taken
        checkpoint/retries          failed attempts

    Args:
        uri: s3://bucket/prefix or a folder; one run at a time.
        settings: How to reach the store; credentials come from the usual AWS chain.
        every_n_steps: Optimizer steps between saves; null: none for this reason.
        every_minutes: Minutes between saves; null: none for this reason.
        keep_last: Newest checkpoints that stay; -1: all.
        keep_best: Best checkpoints that stay, by `monitor`.
        monitor: Metric of the validation, such as val/tau; a save follows each one that is among the best.
        mode: min or max, whichever of `monitor` is better.
        keep_every_n_steps: Checkpoints of these steps stay for ever.
        on_error: A save that cannot be stored, now or later, ends the run (raise) or is only told (warn).
        deadline_s: Seconds for the last save when the run is stopped or fails.
        end_deadline_s: The same when it ends by itself.
        shard_deadline_s: Seconds for all ranks to store their parts of a checkpoint (ModelParallelStrategy).
        arenas: Snapshots that can wait in memory; null: three, or two where memory is short.
        process: Store from a process of its own; false: from a thread.
        if_missing: What `--ckpt_path last` does while this store holds no checkpoint: error, or fresh: start
            from nothing and say so, so that the same command line starts the run and restarts it.
    """

    def __init__(
        self,
        uri: str,
        settings: StoreSettings = StoreSettings(),  # noqa: B008  (frozen)
        every_n_steps: int | None = 500,
        every_minutes: float | None = None,
        keep_last: int = 2,
        keep_best: int = 1,
        monitor: str | None = None,
        mode: Mode = "max",
        keep_every_n_steps: int | None = None,
        on_error: Literal["raise", "warn"] = "raise",
        deadline_s: float = 25.0,
        end_deadline_s: float = 600.0,
        arenas: int | None = None,
        process: bool = True,
        if_missing: Literal["error", "fresh"] = "error",
        shard_deadline_s: float = 1800.0,
    ) -> None:
        self.uri = uri.rstrip("/") or uri
        self.settings = settings
        self.retention = Retention(
            keep_last=keep_last,
            keep_best=keep_best,
            every_n_steps=keep_every_n_steps,
            monitor=monitor,
            mode=mode,
        )
        self.cadence = Cadence(every_n_steps=every_n_steps, every_minutes=every_minutes)
        self.on_error = on_error
        self.deadline_s = deadline_s
        self.end_deadline_s = end_deadline_s
        self.if_missing = if_missing
        self.shard_deadline_s = shard_deadline_s
        self._memory = Memory(arenas=arenas, process=process, pin=torch.cuda.is_available())
        self._run_id = uuid4().hex[:12]
        self._best: list[float] = []  # values of the best saves that were taken; kept where ranks save
        self._measured = False  # the same on all ranks, unlike what was taken
        self._prepared = False
        self._saves: Saves | None = None  # of rank 0; of each where ranks hold parts

    @property
    def resume_uri(self) -> str:
        return self.uri

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        strategy = trainer.strategy
        if stage == "fit" and not isinstance(
            strategy, (SingleDeviceStrategy, DDPStrategy, ModelParallelStrategy)
        ):
            raise ValueError(
                f"S3Checkpoint does not know how {type(strategy).__name__} spreads the state over processes; "
                "train with strategy: ddp or ModelParallelStrategy, or save with Lightning's ModelCheckpoint"
            )
        fresh_at = self.uri if self.if_missing == "fresh" else None
        fetch_addresses(trainer, self.settings, fresh_at=fresh_at)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.strategy.restore_checkpoint_after_setup:
            self._open(trainer, pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.strategy.restore_checkpoint_after_setup:  # only now is known which run goes on here
            self._open(trainer, pl_module)
        if any(optimizer.state for optimizer in trainer.optimizers):  # resumed: as large as it will be
            self._prepare(trainer)

    def _open(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        self._run_id = trainer.strategy.broadcast(self._run_id)
        self._prepared = False
        session = partial(Session, self.uri, self.settings, self._run_id, self._memory)
        self._saves = open_saves(
            trainer, pl_module, session, self.retention, shard_deadline_s=self.shard_deadline_s
        )

    def _prepare(self, trainer: Trainer) -> None:
        if not self._prepared:
            self._prepared = True  # on all ranks, also where nothing is saved
            prepare_saves(trainer, self._saves)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        if self._saves:
            self._saves.begin_step()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, DFlashModule)
        saves, session = self._saves, self._saves and self._saves.session
        if saves and session:
            session.poll()
            failed = session.problem is not None and self.on_error == "raise"
            pl_module.stop_votes["storage"] = session.taken_over or failed
            saves.vote(self.cadence)
        if not pl_module.step_finished:
            return
        if pl_module.last_totals.storage:
            problem = session.problem if session else None
            reason = problem or "rank 0 says why"
            raise CheckpointsLost(f"checkpoints can no longer be stored: {reason}") from problem
        self._prepare(trainer)
        if saves and session:
            if saves.is_due(self.cadence):
                saves.save("step")
            if pl_module.log_now and trainer.is_global_zero:
                pl_module.log_dict(session.metrics(), rank_zero_only=True)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        monitor = self.retention.monitor
        if trainer.state.fn != "fit" or trainer.sanity_checking or monitor is None:
            return
        if self._measured and monitor not in trainer.callback_metrics:
            return  # not measured this time: HeldOutDecoding.every_n_validations
        value = value_of(trainer, monitor)  # refused on all ranks where there is none
        self._measured = True
        best = among_best(self._best, value, keep=self.retention.keep_best, mode=self.retention.mode)
        if best and self._saves:
            before, self._best = self._best, best  # the snapshot holds the bar that it sets
            if not self._saves.save_if_room("best"):
                self._best = before  # what is not there must not keep worse ones out

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        saves, self._saves = self._saves, None
        lost = saves is not None and not saves.finish("end", self.end_deadline_s)
        if trainer.strategy.reduce_boolean_decision(lost and self.on_error == "raise", all=False):
            raise CheckpointsLost("the run is over, but its last checkpoint is not stored; the log names it")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        stopped = isinstance(exception, (SystemExit, KeyboardInterrupt, SIGTERMException))
        together = isinstance(exception, (StoppedBySignal, CheckpointsLost))
        saves, self._saves = self._saves, None
        try:
            if saves:
                saves.finish("signal" if stopped else "exception", self.deadline_s, together=together)
        except Exception as error:  # what ended the run must be what people see
            rank_zero_warn(f"the last checkpoint cannot be taken: {error}")
        if together:
            with suppress(Exception):  # all ranks are here; if one left, torchrun would end the others
                trainer.strategy.barrier("the last checkpoint")

    def state_dict(self) -> dict[str, Any]:
        return {"uri": self.uri, "run_id": self._run_id, "best": list(self._best)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Under the same prefix it is the same run, whose older checkpoints may go; elsewhere another."""
        if is_same_place(state_dict["uri"], self.uri):
            self._run_id, self._best = state_dict["run_id"], list(state_dict["best"])
            self._measured = bool(self._best)
