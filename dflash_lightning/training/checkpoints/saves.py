"""The saves of one run, between its trainer and the session that stores them.

law   rank 0 alone saves, and without a collective; the other ranks only learn when the run must end
law   a drafter that is split over ranks is saved by all of them or by none: whether to save now is decided
      by what all ranks exchange at every optimizer step
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from lightning import Trainer
from lightning.pytorch.utilities import rank_zero_info

from dflash_lightning.checkpoint.job import Kind, Retention, SaveJob
from dflash_lightning.checkpoint.keeping.cadence import Cadence
from dflash_lightning.checkpoint.publishing.rank_writer import Meeting, open_meeting
from dflash_lightning.checkpoint.session import Session
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.writing.announce import durable_line
from dflash_lightning.checkpoint.writing.events import Durable
from dflash_lightning.checkpoint.writing.pending import name_of
from dflash_lightning.training.checkpoints.checkpoint_state import dump_state, make_job
from dflash_lightning.training.checkpoints.split_state import is_split, main_address
from dflash_lightning.training.checkpoints.wandb_checkpoints import WandbReferences
from dflash_lightning.training.module import DFlashModule
from dflash_lightning.training.rank_zero import raise_on_all_ranks

log = logging.getLogger(__name__)
LOST = (
    "the checkpoint of %s is not stored, and the run ends; --ckpt_path goes on from the newest that is. "
    "Storage had %g s: S3Checkpoint.deadline_s, or end_deadline_s where a run ends by itself, gives it more"
)


class CheckpointsLost(StoreError):
    """Raised on all ranks together."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="other")


class Saves:
    """Of rank 0, or of every rank that holds a part of the drafter; from the start of a fit to its end."""

    def __init__(
        self,
        trainer: Trainer,
        module: DFlashModule,
        session: Session,
        retention: Retention,
        *,
        references: WandbReferences | None = None,
        meets_at: Any = None,
    ) -> None:
        self._trainer = trainer
        self._module = module
        self._retention = retention
        self._saved: tuple[int, int | None] | None = None
        self._saved_at = time.monotonic()
        self._step_begun: int | None = None
        self._split = is_split(trainer.strategy)
        self._owed = False
        self._references = references
        self._meets_at = meets_at  # a server, alive for as long as this object
        self.session = session

    @property
    def age_s(self) -> float:
        """Since the last save, or the start."""
        return time.monotonic() - self._saved_at

    def begin_step(self) -> None:
        """Until the cursor moves, weights may be ahead of it: then nothing can be saved."""
        self._step_begun = self._module.data.position.steps

    def prepare(self) -> None:
        """Once the optimizer has its state, so that no later save has to take memory.

        Raises: MemoryError; OSError where the writer cannot be started.
        """
        begin = time.perf_counter()
        if self._step_begun is None:  # resumed: the same state is stored where it came from
            self._saved = self._state()
        if not self.session.is_ready:
            self.session.prepare(dump_state(self._trainer))
        self.session.blocked(time.perf_counter() - begin)

    def vote(self, cadence: Cadence) -> None:
        """What this rank says at the next optimizer step."""
        if self._split:
            votes = self._module.stop_votes
            votes["busy"] = bool(self.session.unfinished)
            votes["save"] = cadence.is_time(self.age_s)

    def is_due(self, cadence: Cadence) -> bool:
        """The same answer on all ranks that save. While one of them is busy a save is owed: then the newest
        state is saved as soon as none is."""
        steps = self._module.data.position.steps
        if not self._split:
            return cadence.is_due(steps, self.age_s)
        totals = self._module.last_totals
        self._owed = self._owed or cadence.is_step(steps) or totals.save > 0
        due = self._owed and not totals.busy
        self._owed = self._owed and not due
        return due

    def save_if_room(self, kind: Kind) -> bool:
        """For a save that cannot be owed. True where it was taken, on all ranks that save: a collective."""
        return self._has_room(kind) and self._everywhere(self.save(kind))

    def _has_room(self, kind: Kind) -> bool:
        if not self._split:
            return True
        held = self.session.unfinished
        if self._everywhere(len(held) < self.session.capacity and all(job.kind != kind for job in held)):
            return True
        self.session.not_tried += 1
        name = f"step {self._module.data.position.steps} ({kind})"
        log.warning("the checkpoint of %s was not taken: a rank still stores earlier ones", name)
        return False

    def _everywhere(self, here: bool) -> bool:
        return self._trainer.strategy.reduce_boolean_decision(here, all=True) if self._split else here

    def save(self, kind: Kind) -> bool:
        """False: refused, and said in the log."""
        begin = time.perf_counter()
        with self._trainer.profiler.profile("save_checkpoint"):  # type: ignore[attr-defined]  # by a connector
            taken = self.session.save(self._job(kind), dump_state(self._trainer))
        if taken:
            self._saved = self._state()
        self._saved_at = time.monotonic()
        self.session.blocked(time.perf_counter() - begin)
        if self._split:  # heard by all at the next step, before this rank votes again
            self._module.stop_votes.update(busy=True, save=False)
        return taken

    def finish(self, kind: Kind, deadline_s: float, *, together: bool = True) -> bool:
        """The last save, where the state is not stored yet, and all that waits. False: something is lost.

        `together`: all ranks are here, so that those that hold parts can save once more.
        """
        session, begin = self.session, time.monotonic()
        wanted = session.is_ready and not session.taken_over and self._is_unsaved()
        try:
            taken = self._agree_on_last(wanted, deadline_s / 2, together=together) if self._split else wanted
            last = (self._job(kind), dump_state(self._trainer)) if taken else None
            lost = session.finish(last, deadline_s - (time.monotonic() - begin))
            lost += [self._job(kind)] if wanted and not taken else []
            for job in lost:  # before anything else waits for a store that may be dead: this must be read
                log.error(LOST, name_of(job), deadline_s)
        finally:
            session.close()
            if self._references is not None:
                self._references.close()
        return not lost and session.problem is None

    def _agree_on_last(self, wanted: bool, deadline_s: float, *, together: bool) -> bool:
        """True where every rank wants it and has stored what it held: in a queue, one rank could drop a save
        that another has begun to store."""
        if not together:
            return False
        self.session.flush(deadline_s)
        ready = wanted and not self.session.unfinished
        return self._trainer.strategy.reduce_boolean_decision(ready, all=True)

    def _job(self, kind: Kind) -> SaveJob:
        job = make_job(self._trainer, self._module, kind, self.session.run_id, self._retention)
        return replace(job, must_keep=True) if self._split else job

    def _is_unsaved(self) -> bool:
        return self._is_whole() and self._state() != self._saved

    def _state(self) -> tuple[int, int | None]:
        return self._module.data.position.steps, self._module.validated_at

    def _is_whole(self) -> bool:
        """Not in the middle of an optimizer step, which an error may have cut short."""
        return self._trainer.global_step == self._module.data.position.steps != self._step_begun


def _tell(trainer: Trainer, references: WandbReferences, event: Durable) -> None:
    ranks = trainer.world_size if is_split(trainer.strategy) else 1
    rank_zero_info(durable_line(event, ranks=ranks))
    references.add(event)


def open_saves(
    trainer: Trainer,
    module: DFlashModule,
    open_session: Callable[..., Session],
    retention: Retention,
    *,
    shard_deadline_s: float,
) -> Saves | None:
    """On all ranks; None where this rank has nothing to save. `open_session` gets on_durable and meeting.

    Raises: StoreError, on all ranks.
    """
    split = is_split(trainer.strategy)
    saves: Saves | None = None
    problem: Exception | None = None
    meeting: Meeting | None = None
    if trainer.is_global_zero:
        try:
            meets_at = open_meeting(main_address(trainer)) if split else None
            if meets_at is not None:
                meeting = Meeting(
                    host=main_address(trainer),
                    port=meets_at.port,
                    rank=0,
                    world=trainer.world_size,
                    deadline_s=shard_deadline_s,
                )
            references = WandbReferences(trainer.loggers)
            session = open_session(on_durable=partial(_tell, trainer, references), meeting=meeting)
            saves = Saves(trainer, module, session, retention, references=references, meets_at=meets_at)
        except (StoreError, OSError, ValueError) as error:
            problem = error
    raise_on_all_ranks(trainer, problem)
    meeting = trainer.strategy.broadcast(meeting)
    if saves is None and meeting is not None:
        session = open_session(meeting=replace(meeting, rank=trainer.global_rank))
        saves = Saves(trainer, module, session, retention)
    return saves


def prepare_saves(trainer: Trainer, saves: Saves | None) -> None:
    """On all ranks: a collective. Raises: CheckpointsLost, on all ranks, where one of them lacks memory."""
    problem: Exception | None = None
    try:
        if saves is not None:
            saves.prepare()
    except (MemoryError, OSError) as error:
        problem = error
    if trainer.strategy.reduce_boolean_decision(problem is not None, all=False):
        reason = problem or "another rank says why"
        raise CheckpointsLost(f"the first snapshot of the training state has no place: {reason}") from problem
