"""Which call of a store fails, and how: the schedule, and the log of calls.

in    faults; each call of the store around it
out   what to do at this call
law   the same calls in the same order meet the same faults
"""

import os
import threading
import time
from dataclasses import dataclass
from typing import Literal

from dflash_lightning.checkpoint.stores.errors import Kind, StoreError

Operation = Literal[
    "put",
    "open",
    "write",
    "finish",
    "abort",
    "read",
    "head",
    "list",
    "delete",
    "list_uploads",
    "abort_upload",
]
Does = Literal["raise", "lose", "flip", "rot", "die", "exit", "wait"]


@dataclass(frozen=True)
class Fault:
    """What happens at some calls of one operation; `any` counts the calls of all operations together."""

    operation: Operation | Literal["any"]
    call: int = 1
    """First call concerned, counted from 1."""
    does: Does = "raise"
    """raise: fail before anything is done. lose: do it, then fail, as if the answer were lost.
    flip: one bit changed on the way; a store with checksums refuses it on the way up, not on the way down.
    rot: one bit changed and nothing noticed. die: raise `Died`, from now on at every call.
    exit: end the process as a kill would. wait: take `seconds` longer."""
    kind: Kind = "transient"
    times: int = 1
    """Calls in a row."""
    seconds: float = 0.0
    key: str = ""
    """Only calls whose key holds this text are counted and concerned."""


@dataclass(frozen=True)
class Event:
    """One call: number from 1 over all operations, what was asked, of which key (of "delete" the first)."""

    number: int
    operation: Operation
    key: str


class Died(BaseException):
    """The process would be gone now. Not an Exception, so that no handler mistakes it for a failed call."""


class Script:
    """`events` may be read at any time."""

    def __init__(self, *faults: Fault) -> None:
        self.events: list[Event] = []
        self.dead = False
        self._calls = [0] * len(faults)
        self._faults = faults
        self._lock = threading.Lock()

    def begin(self, operation: Operation, key: str) -> Fault | None:
        """Log the call, and do what comes before it. Returns the fault for what comes after."""
        with self._lock:
            if self.dead:
                raise Died
            self.events.append(Event(len(self.events) + 1, operation, key))
            fault = self._due(operation, key)
            self.dead = fault is not None and fault.does == "die"
        if fault is None:
            return None
        if fault.does == "die":
            raise Died
        if fault.does == "exit":
            os._exit(137)
        if fault.does == "wait":
            time.sleep(fault.seconds)
        if fault.does == "raise":
            raise _scripted(fault, operation, key)
        return fault

    def end(self, fault: Fault | None) -> None:
        if fault is not None and fault.does == "lose":
            raise _scripted(fault, fault.operation, fault.key)

    def _due(self, operation: Operation, key: str) -> Fault | None:
        due = None
        for number, fault in enumerate(self._faults):
            if fault.operation in (operation, "any") and fault.key in key:
                self._calls[number] += 1
                if fault.call <= self._calls[number] < fault.call + fault.times:
                    due = due or fault
        return due


def damaged(data: bytes, fault: Fault | None, *, up: bool) -> bytes:
    """The bytes after a fault on their way up to the store or down from it."""
    if fault is None or fault.does not in ("flip", "rot") or not data:
        return data
    if up and fault.does == "flip":
        raise StoreError("scripted: a bit changed on the way, the store refused it", kind="corrupt")
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def _scripted(fault: Fault, operation: str, key: str) -> StoreError:
    return StoreError(f"scripted: {operation} of {key} failed", kind=fault.kind)
