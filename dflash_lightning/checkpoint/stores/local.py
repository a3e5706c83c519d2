"""A directory as a store: every object a file, complete or absent.

in    keys; a file's path is the root and the key
law   a good file is never opened for writing: bytes go to a temporary file beside it, fsync, then one rename
law   no side files: checksums belong into manifests, so `head` has none
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import require_key
from dflash_lightning.checkpoint.stores.local_errors import translated
from dflash_lightning.checkpoint.stores.local_upload import PENDING, LocalUpload
from dflash_lightning.checkpoint.stores.protocol import (
    ObjectFacts,
    ObjectStore,
    PendingUpload,
    Upload,
)


class LocalStore:
    """The root need not exist; it is made by the first write. A key cannot be both a file and a folder of
    others, as it could in a bucket."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, key: str, data: bytes, *, only_if_absent: bool = False) -> None:
        upload = LocalUpload(self.path(key), key, only_if_absent=only_if_absent)
        try:
            upload.write(data)
            upload.finish()
        except StoreError:
            upload.abort()
            raise

    def open_upload(self, key: str, *, size_hint: int) -> Upload:
        return LocalUpload(self.path(key), key)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> bytes:
        path = self.path(key)
        with translated("read", path), path.open("rb") as file:
            file.seek(start)
            return file.read() if stop is None else file.read(max(0, stop - start))

    def head(self, key: str) -> ObjectFacts | None:
        path = self.path(key)
        with translated("look at", path):
            try:
                return self._facts(path) if path.is_file() else None
            except FileNotFoundError:  # deleted this moment
                return None

    def list(self, prefix: str) -> Iterator[ObjectFacts]:
        for path in self._files(prefix):
            if not _is_pending(path):
                with suppress(FileNotFoundError):  # deleted while listing
                    yield self._facts(path)

    def delete(self, keys: Sequence[str]) -> dict[str, StoreError]:
        failed: dict[str, StoreError] = {}
        for key in keys:
            path = self.path(key)
            try:
                with translated("delete", path):
                    path.unlink(missing_ok=True)
                self._drop_empty_folders(path.parent)
            except StoreError as error:
                failed[key] = error
        return failed

    def list_uploads(self, prefix: str) -> Sequence[PendingUpload]:
        found = []
        for path in self._files(prefix, pending=True):
            with suppress(FileNotFoundError):
                key = self._key(path.with_name(path.name[1:].rsplit(".", 2)[0]))
                found.append(PendingUpload(key, path.name, path.stat().st_mtime))
        return [pending for pending in found if pending.key.startswith(prefix)]

    def abort_upload(self, pending: PendingUpload) -> None:
        path = self.path(pending.key).with_name(pending.upload_id)
        with translated("delete", path):
            path.unlink(missing_ok=True)
        self._drop_empty_folders(path.parent)

    def uri(self, key: str) -> str:
        return str(self.root / key)

    def quick(self) -> ObjectStore:
        return self

    def path(self, key: str) -> Path:
        require_key(key)
        return self.root / key

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _facts(self, path: Path) -> ObjectFacts:
        stat = path.stat()
        return ObjectFacts(self._key(path), stat.st_size, stat.st_mtime, None, None)

    def _drop_empty_folders(self, folder: Path) -> None:
        """As in a bucket, where a folder is there while something is in it."""
        with suppress(OSError):  # not empty, or not ours to remove
            while folder != self.root and self.root in folder.parents:
                folder.rmdir()
                folder = folder.parent

    def _files(self, prefix: str, *, pending: bool = False) -> Sequence[Path]:
        """Files below the deepest folder that the prefix names whole, in key order."""
        start = self.root / prefix.rpartition("/")[0]
        with translated("list", start):
            paths = [Path(folder, name) for folder, _, names in os.walk(start) for name in names]
        if pending:
            return sorted(path for path in paths if _is_pending(path))
        return sorted(
            (p for p in paths if self._key(p).startswith(prefix)), key=lambda p: self._key(p).encode()
        )


def _is_pending(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(PENDING)
