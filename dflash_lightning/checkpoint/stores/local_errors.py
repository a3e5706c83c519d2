"""From an OSError of the file system to a StoreError that a person can act on.

in    the error, what was tried, on which path
out   a kind to decide by, and a message with the path and the way out
"""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dflash_lightning.checkpoint.stores.errors import Kind, StoreError

_KINDS: dict[int | None, Kind] = {
    errno.ENOENT: "missing",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EROFS: "denied",
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EAGAIN: "transient",
    errno.EIO: "transient",
    errno.ESTALE: "transient",
    errno.ETIMEDOUT: "transient",
}


@contextmanager
def translated(action: str, path: Path, *, size: int | None = None) -> Iterator[None]:
    """Turns an OSError inside into a StoreError; `size` is the bytes that were to be stored."""
    try:
        yield
    except OSError as error:
        raise as_store_error(error, action, path, size=size) from error


def as_store_error(error: OSError, action: str, path: Path, *, size: int | None = None) -> StoreError:
    kind = _KINDS.get(error.errno, "other")
    if kind == "full":
        free = _free_bytes(path)
        wanted = "" if size is None else f" {size:,} bytes"
        return StoreError(
            f"no space to {action}{wanted} at {path}: {free}; free some, keep fewer checkpoints, "
            "or check the quota",
            kind=kind,
        )
    if kind == "missing":
        return StoreError(f"there is no file {path}", kind=kind)
    if kind == "denied":
        return StoreError(
            f"not allowed to {action} {path} ({error.strerror}); check its owner and permissions",
            kind=kind,
        )
    return StoreError(f"cannot {action} {path}: {error.strerror or error}", kind=kind)


def _free_bytes(path: Path) -> str:
    existing = next((folder for folder in path.parents if folder.is_dir()), Path("/"))
    return f"{shutil.disk_usage(existing).free:,} bytes are free in {existing}"
