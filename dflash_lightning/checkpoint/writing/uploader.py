"""Inside the uploader process: listens to the trainer, and leaves when that is gone and all is stored.

in    a pipe, and the process id of the trainer
out   reports through the pipe, while somebody reads it
"""

import logging
import os
import pickle
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle

import torch

from dflash_lightning.checkpoint.snapshots.arena import Arena
from dflash_lightning.checkpoint.writing.messages import Missed, Report, Save
from dflash_lightning.checkpoint.writing.priority import step_back
from dflash_lightning.checkpoint.writing.worker import Worker

log = logging.getLogger(__name__)


def main(fd: int, parent: int) -> None:
    """Ends the process when nothing is left to do for this trainer."""
    # Schedulers signal all processes of a job at once; when to stop is the trainer's decision.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    step_back(parent)
    pipe = Connection(fd)
    worker = Worker(pickle.loads(pipe.recv()), _Sender(pipe))
    thread = threading.Thread(target=worker.run, name="checkpoint-writer")
    thread.start()
    try:
        _listen(pipe, parent, worker)
    finally:
        worker.drain()
        thread.join()
    os._exit(0)  # everything is stored and fsynced: taking torch down in order would take seconds


class _Sender:
    """The worker goes on when nobody listens any more; the log then says what it gives up."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def __call__(self, report: Report) -> None:
        try:
            self._pipe.send(report)
        except OSError:
            if isinstance(report, Missed) and report.pause_s is None:
                log.warning("a checkpoint of a run that has ended is not stored: %s", report.message)


def _listen(pipe: Connection, parent: int, worker: Worker) -> None:
    """Until the trainer is gone. Its end of the pipe may outlive it in processes that it forked, such as
    workers of a DataLoader, so the process itself is watched too."""
    watched: list[Connection | int] = [pipe]
    with suppress(ProcessLookupError):
        watched.append(os.pidfd_open(parent))
    gone = os.getppid() != parent or len(watched) == 1
    with suppress(EOFError, OSError):
        while not gone:
            gone = any(ready is not pipe for ready in wait(watched))
            while pipe.poll():
                _obey(pipe, pipe.recv(), worker)
        while pipe.poll():
            _obey(pipe, pipe.recv(), worker)


def _obey(pipe: Connection, message: Save | tuple[int, int] | str, worker: Worker) -> None:
    if isinstance(message, Save):
        worker.submit(message)
    elif isinstance(message, tuple):
        slot, capacity = message
        worker.attach(slot, Arena.attached(recv_handle(pipe), capacity))
    elif message == "hurry":
        worker.hurry()
    else:
        worker.stop()
        raise EOFError
