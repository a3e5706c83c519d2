"""owner.json: who writes under a prefix, and whether it still does.

in    a store, a prefix
out   an Owner; None where nobody has claimed the prefix
law   what nobody can read belongs to nobody: half a word must not lock a prefix for ever
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.protocol import ObjectStore

OWNER = "owner.json"


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

    def __str__(self) -> str:
        return f"run {self.run_id} (process {self.pid} on {self.host})"

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()


UNREADABLE = Owner("unknown", "unknown", 0, "", "", 0.0, 0.0)
"""Stands for a file that nobody can read."""


def read_owner(store: ObjectStore, prefix: str) -> Owner | None:
    """Raises: StoreError when the store cannot be asked."""
    try:
        text = store.read(join_key(prefix, OWNER))
    except StoreError as error:
        if error.kind == "missing":
            return None
        raise
    with suppress(ValueError, TypeError):
        return Owner(**json.loads(text))
    return UNREADABLE


def require_ours(store: ObjectStore, prefix: str, nonce: str) -> Owner | None:
    """What is there, if anything. Raises: StoreError of kind "conflict" where it is another's: of another
    run, or of another start of this one."""
    found = read_owner(store, prefix)
    if found is not None and found.nonce != nonce:
        raise StoreError(
            f"{store.uri(join_key(prefix, OWNER))} now belongs to {found}; this run must not write there any "
            "more: give it a prefix of its own",
            kind="conflict",
        )
    return found


def is_gone(owner: Owner, machine: str) -> bool:
    """True where `machine`, this one, can tell: a run that was killed need not wait for its own heartbeat."""
    if not owner.machine or owner.machine != machine or owner.pid == os.getpid():
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # it runs, as another user
    return False


def this_machine() -> str:
    """This boot and its space of process ids: many containers have the same host name."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""
