"""A checkpoint as a W&B artifact: a reference to where it lies, never its bytes.

law   the training thread never waits here: W&B asks its own server, and makes a session for the bucket from
      credentials that it looks for by itself, at every reference
"""

import logging
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

from lightning.pytorch.loggers import Logger, WandbLogger

from dflash_lightning.checkpoint.redact import known_secrets, redact_text
from dflash_lightning.checkpoint.writing.events import Durable
from dflash_lightning.checkpoint.writing.pending import name_of

log = logging.getLogger(__name__)
CLOSE_S = 5.0


class WandbReferences:
    """Methods belong to the training thread; a thread of its own, begun with the first reference, does the
    rest. `close` when the run ends."""

    def __init__(self, loggers: Sequence[Logger], *, close_s: float = CLOSE_S) -> None:
        self._loggers = [logger for logger in loggers if isinstance(logger, WandbLogger)]
        self._close_s = close_s
        self._waiting: SimpleQueue[tuple[Any, Durable] | None] = SimpleQueue()
        self._unfinished: list[Durable] = []
        self._thread: threading.Thread | None = None

    def add(self, event: Durable) -> None:
        """Only of what is durable, and only of a bucket: a folder of this machine means nothing to others."""
        if not event.uri.startswith("s3://"):
            return
        for logger in self._loggers:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="wandb-references", daemon=True)
                self._thread.start()
            self._unfinished.append(event)
            self._waiting.put((logger.experiment, event))

    def close(self) -> None:
        """Wait for what is left, for a few seconds: the checkpoints themselves are durable."""
        if self._thread is None:
            return
        self._waiting.put(None)
        self._thread.join(self._close_s)
        if self._unfinished:
            names = ", ".join(name_of(event.job) for event in self._unfinished)
            log.warning("W&B has taken no reference to %s within %.0f s", names, self._close_s)

    def _work(self) -> None:
        while (one := self._waiting.get()) is not None:
            run, event = one
            try:
                _refer(run, event)
            except Exception as error:  # a reference is worth neither the run nor the next reference
                said = redact_text(f"{type(error).__name__}: {error}", known_secrets())
                log.warning("W&B takes no reference to %s: %s", name_of(event.job), said)
            self._unfinished.remove(event)


def _refer(run: Any, event: Durable) -> None:
    import wandb

    metadata = {"step": event.job.step, "kind": event.job.kind, **event.job.metrics}
    artifact = wandb.Artifact(f"checkpoint-{event.job.run_id}", type="model", metadata=metadata)
    # checksum=True would ask the bucket, with other settings than ours.
    artifact.add_reference(event.uri, name="checkpoint", checksum=False)
    run.log_artifact(artifact)
