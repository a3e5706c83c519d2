"""One run per prefix: who writes here says so, and says again that it is alive.

in    a store, a prefix, the run's id; the time, in seconds since 1970
out   a Claim to renew and release, or a StoreError of kind "conflict" that names the other run
law   of two runs that start together at most one keeps its claim: even where the store ignores "only if
      absent", each reads back what it wrote, and one that was overwritten learns it here or when it renews
"""

import json
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from uuid import uuid4

from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.protocol import ObjectStore

log = logging.getLogger(__name__)
OWNER = "owner.json"
LOOK_S = 5.0
"""Between two looks at an owner that may be dead."""


@dataclass(frozen=True)
class Owner:
    """Content of owner.json."""

    run_id: str
    host: str
    pid: int
    machine: str
    """Boot and space of process ids, "" if unknown."""
    nonce: str
    """Of one process: a run that was resumed has another."""
    started: float
    heartbeat: float
    """Seconds since 1970, by the owner's clock."""


UNREADABLE = Owner("unknown", "unknown", 0, "", "", 0.0, 0.0)
"""Stands for a file that nobody can read: half a word must not lock a prefix for ever."""


class Claim:
    """Held by the process that got it from `claim`."""

    def __init__(self, store: ObjectStore, prefix: str, owner: Owner) -> None:
        self._store = store
        self._key = join_key(prefix, OWNER)
        self.owner = owner

    def renew(self, now: float) -> None:
        """Write a new heartbeat. Raises: StoreError of kind "conflict" when another run has taken over."""
        found = _read_owner(self._store, self._key)
        if found is not None and found.nonce != self.owner.nonce:
            raise StoreError(
                f"{self._store.uri(self._key)} now belongs to run {found.run_id} (process {found.pid} on "
                f"{found.host}); this run must not write there any more: give it a prefix of its own",
                kind="conflict",
            )
        self.owner = replace(self.owner, heartbeat=now)
        self._store.put(self._key, _encode(self.owner))

    def release(self) -> None:
        """Let the next run start at once. What another run has taken over stays."""
        found = _read_owner(self._store, self._key)
        if found is not None and found.nonce == self.owner.nonce:
            for error in self._store.delete([self._key]).values():
                raise error


def claim(
    store: ObjectStore,
    prefix: str,
    run_id: str,
    *,
    now: float,
    stale_after_s: float,
    settle_s: float = 0.5,
    sleep: Callable[[float], None] = time.sleep,
) -> Claim:
    """Take the prefix. An owner without a sign of life for `stale_after_s` loses it, with a warning; so does
    one whose process was on this machine and is gone. Where the owner is an earlier start of this very run,
    that time is waited for: a run that is started again after its machine died must not fail for that.

    Raises: StoreError of kind "conflict" with host, process, run and age of the owner, and the way out.
    """
    key = join_key(prefix, OWNER)
    mine = Owner(run_id, socket.gethostname(), os.getpid(), _machine(), uuid4().hex, now, now)
    found, waited = _outlive(store, key, mine, stale_after_s, sleep)
    now += waited
    mine = replace(mine, started=now, heartbeat=now)
    if found is not None:
        if _holds(found, mine, stale_after_s) and waited < stale_after_s:
            raise _taken(store, key, found, now, stale_after_s)
        log.warning(
            "taking over %s from run %s (process %d on %s), silent for %.0f s",
            *(store.uri(prefix), found.run_id, found.pid, found.host, now - found.heartbeat),
        )
    try:
        store.put(key, _encode(mine), only_if_absent=found is None)
    except StoreError as error:
        if error.kind != "conflict":
            raise
    sleep(settle_s)  # another run that started at the same time has written by now
    winner = _read_owner(store, key)
    if winner is None or winner.nonce != mine.nonce:
        raise _taken(store, key, winner or mine, now, stale_after_s)
    return Claim(store, prefix, mine)


def _outlive(
    store: ObjectStore, key: str, mine: Owner, stale_after_s: float, sleep: Callable[[float], None]
) -> tuple[Owner | None, float]:
    """The owner, and for how many seconds it has been watched: an earlier start of this run until it has been
    silent for too long, is gone, or shows that it lives."""
    first = found = _read_owner(store, key)
    waited = 0.0
    while (
        found is not None
        and found == first
        and found.run_id == mine.run_id
        and _holds(found, mine, stale_after_s - waited)
    ):
        if not waited:
            log.warning(
                "waiting for up to %.0f s: %s is held by %s", stale_after_s, store.uri(key), _who(found)
            )
        sleep(LOOK_S)
        waited += LOOK_S
        found = _read_owner(store, key)
    return found, waited


def _holds(owner: Owner, mine: Owner, within_s: float) -> bool:
    """True while its last sign of life counts."""
    return mine.heartbeat - owner.heartbeat < within_s and within_s > 0 and not _is_gone(owner, mine)


def _is_gone(owner: Owner, mine: Owner) -> bool:
    """True where the machine itself can tell: a run that was killed need not wait for its own heartbeat."""
    if not owner.machine or owner.machine != mine.machine or owner.pid == mine.pid:
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # it runs, as another user
    return False


def _machine() -> str:
    """This boot and its space of process ids: many containers have the same host name."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def _taken(store: ObjectStore, key: str, owner: Owner, now: float, stale_after_s: float) -> StoreError:
    silent = max(0.0, now - owner.heartbeat)
    return StoreError(
        f"{store.uri(key)} says that {_who(owner)} writes here, last alive {silent:.0f} s ago; two runs "
        f"under one prefix would delete each other's checkpoints. Give this run another prefix, or stop that "
        f"one; if it is dead, wait until it has been silent for {stale_after_s:.0f} s, or delete {OWNER}",
        kind="conflict",
    )


def _who(owner: Owner) -> str:
    return f"run {owner.run_id} (process {owner.pid} on {owner.host})"


def _encode(owner: Owner) -> bytes:
    return json.dumps(asdict(owner), indent=1).encode()


def _read_owner(store: ObjectStore, key: str) -> Owner | None:
    """None where there is no such file."""
    try:
        text = store.read(key)
    except StoreError as error:
        if error.kind == "missing":
            return None
        raise
    with suppress(ValueError, TypeError):
        return Owner(**json.loads(text))
    return UNREADABLE
