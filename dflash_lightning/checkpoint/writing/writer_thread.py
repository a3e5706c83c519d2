"""The worker as a thread of the trainer: where no memory can be shared with a process.

law   a daemon: an interpreter that ends does not wait for the store; the attempt in progress is cut short
      and, since only the last call of a save publishes it, leaves nothing that looks like a checkpoint
"""

import atexit
import queue
import threading

from dflash_lightning.checkpoint.snapshots.arena import Arena
from dflash_lightning.checkpoint.writing.attempt import Target
from dflash_lightning.checkpoint.writing.messages import Report, Save
from dflash_lightning.checkpoint.writing.worker import Worker

AT_EXIT_S = 2.0


class ThreadChannel:
    """A `Channel`. It shares the interpreter's lock with training; steps are slower than with a process."""

    def __init__(self, target: Target) -> None:
        self._said: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._said_something = threading.Event()
        self._worker = Worker(target, self._report)
        self._thread = threading.Thread(target=self._worker.run, name="checkpoint-writer", daemon=True)
        self._thread.start()
        atexit.register(self.stop, AT_EXIT_S)

    def attach(self, slot: int, arena: Arena) -> None:
        self._worker.attach(slot, arena)

    def submit(self, save: Save) -> None:
        self._worker.submit(save)

    def hurry(self) -> None:
        self._worker.hurry()

    def reports(self) -> list[Report]:
        self._said_something.clear()
        found = []
        while not self._said.empty():
            found.append(self._said.get_nowait())
        return found

    def wait(self, timeout_s: float) -> None:
        self._said_something.wait(max(0.0, timeout_s))

    def death(self) -> str | None:
        return None if self._thread.is_alive() else "its thread ended"

    def stop(self, within_s: float) -> None:
        atexit.unregister(self.stop)
        self._worker.stop()
        self._thread.join(within_s)

    def _report(self, report: Report) -> None:
        self._said.put(report)
        self._said_something.set()
