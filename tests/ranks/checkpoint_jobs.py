"""What every rank runs with S3Checkpoint: plain arguments in, plain values out."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from lightning import Callback

from dflash_lightning.callbacks.s3_checkpoint import S3Checkpoint
from dflash_lightning.callbacks.signals import StopOnSignal, StoppedBySignal
from dflash_lightning.checkpoint import session
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.local import LocalStore
from tests.ranks.jobs import Recorder, distribution
from tests.ranks.sharded_jobs import fsdp2
from tests.runs import toy_data, toy_module, toy_trainer


class Behind(Callback):
    """On one rank, behind one optimizer step: a signal to itself, or a store that is slow or refuses. Or,
    from the start, no memory for snapshots."""

    def __init__(self, step: int, rank: int, what: str) -> None:
        self.step, self.rank, self.what = step, rank, what

    def setup(self, trainer, pl_module, stage):
        if self.what == "no memory" and trainer.global_rank == self.rank:
            session.Arenas = _no_memory

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if not pl_module.step_finished or pl_module.data.position.steps != self.step:
            return
        if trainer.global_rank == self.rank:
            if self.what == "signal":
                os.kill(os.getpid(), signal.SIGTERM)
            elif self.what != "no memory":
                LocalStore.open_upload = {"refuse": _refused, "slow": _slow}[self.what]


_open_upload = LocalStore.open_upload


def _no_memory(*args, **options):
    raise MemoryError("only 7 bytes of memory are available")


def _slow(self, key, *, size_hint):
    time.sleep(0.5)
    return _open_upload(self, key, size_hint=size_hint)


def _refused(self, key, *, size_hint):
    raise StoreError(f"may not write {key}", kind="denied")


def fit(
    root: str,
    target: str,
    store: str,
    uri: str,
    *,
    resume: str | None = None,
    behind: tuple[int, int, str] | None = None,
    sharded: bool = False,
    max_epochs: int = 2,
    **options: Any,
) -> dict[str, Any]:
    recorder = Recorder()
    settings = {"process": False, "every_n_steps": 2, **options}
    callbacks = [
        *([Behind(*behind)] if behind else []),
        StopOnSignal(),
        S3Checkpoint(uri, **settings),
        recorder,
    ]
    how = {**(fsdp2() if sharded else distribution()), "max_epochs": max_epochs}
    trainer = toy_trainer(Path(root), callbacks=callbacks, enable_checkpointing=True, **how)
    error, upload, arenas = None, LocalStore.open_upload, session.Arenas
    try:
        trainer.fit(toy_module(Path(target)), toy_data(Path(store)), ckpt_path=resume)
    except (StoppedBySignal, StoreError) as stopped:
        error = f"{type(stopped).__name__}: {stopped}"
    finally:
        LocalStore.open_upload, session.Arenas = upload, arenas
    return {"batches": recorder.batches, "steps": recorder.steps, "error": error}
