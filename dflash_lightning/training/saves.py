"""The saves of one run, between its trainer and the session that stores them.

law   rank 0 alone saves, and without a collective; the other ranks only learn when the run must end
"""

import logging
import time
from functools import partial

from lightning import Trainer
from lightning.pytorch.utilities import rank_zero_info

from dflash_lightning.checkpoint.job import Kind, Retention
from dflash_lightning.checkpoint.session import Memory, Session
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.settings import StoreSettings
from dflash_lightning.checkpoint.writing.announce import durable_line
from dflash_lightning.checkpoint.writing.events import Durable
from dflash_lightning.checkpoint.writing.pending import name_of
from dflash_lightning.training.checkpoint_state import dump_state, make_job
from dflash_lightning.training.module import DFlashModule
from dflash_lightning.training.wandb_checkpoints import refer_to_checkpoint

log = logging.getLogger(__name__)


class CheckpointsLost(StoreError):
    """Raised on all ranks together."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="other")


class Saves:
    """Of rank 0, from the start of a fit to its end."""

    def __init__(
        self, trainer: Trainer, module: DFlashModule, session: Session, retention: Retention
    ) -> None:
        self._trainer = trainer
        self._module = module
        self._retention = retention
        self._saved: tuple[int, int | None] | None = None
        self._saved_at = time.monotonic()
        self._step_begun: int | None = None
        self.session = session

    @property
    def age_s(self) -> float:
        """Since the last save, or the start."""
        return time.monotonic() - self._saved_at

    def begin_step(self) -> None:
        """Until the cursor moves, weights may be ahead of it: then nothing can be saved."""
        self._step_begun = self._module.data.position.steps

    def prepare(self) -> None:
        """Once the optimizer has its state, so that no later save has to take memory."""
        if not self.session.is_ready:
            self.session.prepare(dump_state(self._trainer))

    def save(self, kind: Kind) -> None:
        begin = time.perf_counter()
        with self._trainer.profiler.profile("save_checkpoint"):  # type: ignore[attr-defined]  # by a connector
            job = make_job(self._trainer, self._module, kind, self.session.run_id, self._retention)
            if self.session.save(job, dump_state(self._trainer)):
                self._saved = self._state()
        self._saved_at = time.monotonic()
        self.session.blocked(time.perf_counter() - begin)

    def finish(self, kind: Kind, deadline_s: float) -> bool:
        """The last save, where the state is not stored yet, and all that waits. False: something is lost."""
        session, last = self.session, None
        try:
            if (
                session.is_ready
                and not session.taken_over
                and self._is_whole()
                and self._state() != self._saved
            ):
                job = make_job(self._trainer, self._module, kind, session.run_id, self._retention)
                last = job, dump_state(self._trainer)
            lost = session.finish(last, deadline_s)
        finally:
            session.close()
        for job in lost:
            log.error("the checkpoint of %s is not stored, and the run ends", name_of(job))
        return not lost and session.problem is None

    def _state(self) -> tuple[int, int | None]:
        return self._module.data.position.steps, self._module.validated_at

    def _is_whole(self) -> bool:
        """Not in the middle of an optimizer step, which an error may have cut short."""
        return self._trainer.global_step == self._module.data.position.steps != self._step_begun


def _tell(trainer: Trainer, event: Durable) -> None:
    rank_zero_info(durable_line(event))
    refer_to_checkpoint(trainer.loggers, event)


def open_saves(
    trainer: Trainer,
    module: DFlashModule,
    uri: str,
    settings: StoreSettings,
    run_id: str,
    memory: Memory,
    retention: Retention,
) -> Saves | None:
    """On all ranks; None on all but rank 0. Raises: StoreError, on all of them."""
    saves: Saves | None = None
    problem: Exception | None = None
    if trainer.is_global_zero:
        told = partial(_tell, trainer)
        try:
            saves = Saves(trainer, module, Session(uri, settings, run_id, memory, on_durable=told), retention)
        except (StoreError, OSError, ValueError) as error:
            problem = error
    reason = trainer.strategy.broadcast(None if problem is None else str(problem))
    if problem is not None:
        raise problem
    if reason is not None:
        raise StoreError(f"rank 0: {reason}", kind="other")
    return saves
