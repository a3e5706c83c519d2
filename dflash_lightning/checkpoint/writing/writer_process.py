"""The worker as a process of its own: uploads do not take the interpreter lock of training, and a trainer
that is killed still gets its last checkpoint stored.

law   a fresh interpreter, never a fork: threads and CUDA of the trainer stay out of it; it has a session of
      its own, so Ctrl-C in the terminal does not reach it
law   it ends with the trainer: not before what it holds is stored, and not later
law   nothing of the environment travels through the pipe; the process inherits it
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle

from dflash_lightning.checkpoint.snapshots.arena import Arena
from dflash_lightning.checkpoint.writing.attempt import Target
from dflash_lightning.checkpoint.writing.messages import Report, Save

MODULE = "dflash_lightning.checkpoint.writing.uploader"
# It looks for modules where the trainer does.
_START = "import sys; sys.path[:] = {path!r}; from {module} import main; main({fd}, {parent})"


class ProcessChannel:
    """A `Channel`. Starting takes milliseconds here; the process needs some seconds until it works."""

    def __init__(self, target: Target) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            code = _START.format(path=sys.path, module=MODULE, fd=theirs.fileno(), parent=os.getpid())
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._pipe = Connection(ours.detach())
        self._send(pickle.dumps(target))

    @property
    def pid(self) -> int:
        return self._process.pid

    def attach(self, slot: int, arena: Arena) -> None:
        assert arena.fd is not None, "only shared memory reaches another process"
        self._send((slot, arena.capacity))
        with suppress(OSError):
            send_handle(self._pipe, arena.fd, self.pid)

    def submit(self, save: Save) -> None:
        self._send(save)

    def hurry(self) -> None:
        self._send("hurry")

    def reports(self) -> list[Report]:
        found: list[Report] = []
        with suppress(EOFError, OSError):
            while self._pipe.poll():
                found.append(self._pipe.recv())
        return found

    def wait(self, timeout_s: float) -> None:
        if self.death() is None:
            wait([self._pipe], max(0.0, timeout_s))
        else:  # its pipe is at its end or closed: whoever waits for a new one must not spin
            time.sleep(max(0.0, timeout_s))

    def death(self) -> str | None:
        code = self._process.poll()
        if code is None:
            return None
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def stop(self, within_s: float) -> None:
        self._send("stop")
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()  # it only ever publishes in one call, so nothing is left half-way
            self._process.wait()
        self._pipe.close()

    def _send(self, message: object) -> None:
        with suppress(OSError):  # it died: `death` says so, and its work goes to the next one
            self._pipe.send(message)
