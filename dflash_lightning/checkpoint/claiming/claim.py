"""One run per prefix: who writes here says so, and says again that it is alive.

in    a store, a prefix, the run's id; the time, in seconds since 1970
out   a Claim to renew and release, or a StoreError of kind "conflict" that names the other run
law   of two runs that start together at most one keeps its claim: even where the store ignores "only if
      absent", each reads back what it wrote, and one that was overwritten learns it here or when it renews
law   no two clocks are compared to call a run dead: its silence is heard out here, by one clock
"""

import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

from dflash_lightning.checkpoint.claiming.owner import (
    OWNER,
    UNREADABLE,
    Owner,
    is_gone,
    read_owner,
    require_ours,
    this_machine,
)
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.protocol import ObjectStore

log = logging.getLogger(__name__)
LOOK_S = 5.0
"""Between two looks at an owner that may be dead."""
WATCH_S = 45.0
"""As long an owner that seems dead must stay silent before one's eyes: more than from one heartbeat to the
next."""


class Claim:
    """Held by the process that got it from `claim`."""

    def __init__(self, store: ObjectStore, prefix: str, owner: Owner) -> None:
        self._store = store
        self._prefix = prefix
        self.owner = owner

    def renew(self, now: float) -> None:
        """Write a new heartbeat. Raises: StoreError of kind "conflict" when another run has taken over."""
        require_ours(self._store, self._prefix, self.owner.nonce)
        self.owner = replace(self.owner, heartbeat=now)
        self._store.put(join_key(self._prefix, OWNER), self.owner.to_json())

    def release(self) -> None:
        """Let the next run start at once. What another run has taken over stays."""
        found = read_owner(self._store, self._prefix)
        if found is not None and found.nonce == self.owner.nonce:
            for error in self._store.delete([join_key(self._prefix, OWNER)]).values():
                raise error


def claim(
    store: ObjectStore,
    prefix: str,
    run_id: str,
    *,
    now: float,
    stale_after_s: float,
    settle_s: float = 0.5,
    watch_s: float = WATCH_S,
    sleep: Callable[[float], None] = time.sleep,
) -> Claim:
    """Take the prefix. An owner without a sign of life for `stale_after_s` loses it, with a warning, unless
    it gives one within `watch_s`; so does, at once, one whose process was on this machine and is gone. Where
    the owner is an earlier start of this very run, `stale_after_s` is waited for: a run that is started again
    after its machine died must not fail for that.

    Raises: StoreError of kind "conflict" with host, process, run and age of the owner, and the way out.
    """
    key = join_key(prefix, OWNER)
    mine = Owner(run_id, socket.gethostname(), os.getpid(), this_machine(), uuid4().hex, now, now)
    found, waited = _outlive(store, prefix, mine, stale_after_s, sleep)
    now += waited
    mine = replace(mine, started=now, heartbeat=now)
    if found is not None and _holds(found, mine, stale_after_s) and waited < stale_after_s:
        raise _taken(store, prefix, found, now, stale_after_s)
    silent = found
    found, watched = _watch(store, prefix, mine, silent, watch_s - waited, sleep)
    now += watched
    if found is not None:
        if found != silent:  # whatever its clock says
            raise _taken(store, prefix, found, found.heartbeat, stale_after_s)
        log.warning(
            "taking over %s from %s, silent for %.0f s",
            *(store.uri(prefix), found, now - found.heartbeat),
        )
    mine = replace(mine, started=now, heartbeat=now)
    try:
        store.put(key, mine.to_json(), only_if_absent=found is None)
    except StoreError as error:
        if error.kind != "conflict":
            raise
    sleep(settle_s)  # another run that started at the same time has written by now
    winner = read_owner(store, prefix)
    if winner is None or winner.nonce != mine.nonce:
        raise _taken(store, prefix, winner or mine, now, stale_after_s)
    return Claim(store, prefix, mine)


def _outlive(
    store: ObjectStore, prefix: str, mine: Owner, stale_after_s: float, sleep: Callable[[float], None]
) -> tuple[Owner | None, float]:
    """The owner, and for how many seconds it has been watched: an earlier start of this run until it has been
    silent for too long, is gone, or shows that it lives."""
    first = read_owner(store, prefix)
    if first is None or first.run_id != mine.run_id or not _holds(first, mine, stale_after_s):
        return first, 0.0
    log.warning("waiting for up to %.0f s: %s is held by %s", stale_after_s, store.uri(prefix), first)
    left_s = stale_after_s - max(0.0, mine.heartbeat - first.heartbeat)
    return _while_unchanged(store, prefix, mine, first, left_s, sleep)


def _watch(
    store: ObjectStore,
    prefix: str,
    mine: Owner,
    silent: Owner | None,
    watch_s: float,
    sleep: Callable[[float], None],
) -> tuple[Owner | None, float]:
    """The owner that seems dead by its age, and for how many seconds it was watched: its clock or this one
    may be wrong by more than that age. Ends as soon as it shows that it lives, or is known to be gone."""
    if silent is None or silent == UNREADABLE or watch_s <= 0 or is_gone(silent, mine.machine):
        return silent, 0.0
    log.warning(
        "watching %s for %.0f s: %s seems silent for %.0f s; if it gives no sign of life, this run "
        "takes its place",
        *(store.uri(join_key(prefix, OWNER)), watch_s, silent, mine.heartbeat - silent.heartbeat),
    )
    return _while_unchanged(store, prefix, mine, silent, watch_s, sleep)


def _while_unchanged(
    store: ObjectStore,
    prefix: str,
    mine: Owner,
    first: Owner,
    limit_s: float,
    sleep: Callable[[float], None],
) -> tuple[Owner | None, float]:
    """Look at the owner until it is another one than `first`, is known to be gone, or `limit_s` are over."""
    found: Owner | None = first
    waited = 0.0
    while found == first and waited < limit_s and not is_gone(first, mine.machine):
        sleep(LOOK_S)
        waited += LOOK_S
        found = read_owner(store, prefix)
    return found, waited


def _holds(owner: Owner, mine: Owner, within_s: float) -> bool:
    """True while its last sign of life counts."""
    return mine.heartbeat - owner.heartbeat < within_s and within_s > 0 and not is_gone(owner, mine.machine)


def _taken(store: ObjectStore, prefix: str, owner: Owner, now: float, stale_after_s: float) -> StoreError:
    silent = max(0.0, now - owner.heartbeat)
    return StoreError(
        f"{store.uri(join_key(prefix, OWNER))} says that {owner} writes here, last alive {silent:.0f} s ago; "
        "two runs under one prefix would delete each other's checkpoints. Give this run another prefix, or "
        f"stop that one; if it is dead, wait until it has been silent for {stale_after_s:.0f} s, or delete "
        f"{OWNER}",
        kind="conflict",
    )
