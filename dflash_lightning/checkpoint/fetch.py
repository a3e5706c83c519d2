"""One verified copy of a checkpoint on this machine's disk, however many processes ask for it.

in    an address as `parse_source` understands it, a folder on a local disk
out   the path of a file that torch.load reads; of shards: the folder that holds rank=0.ckpt, rank=1.ckpt, ...
law   a path is returned only after every byte behind it was compared with the manifest's checksums
law   a file appears under its name whole or not at all
"""

import fcntl
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from dflash_lightning.checkpoint.download import download, is_intact
from dflash_lightning.checkpoint.layout import DATA
from dflash_lightning.checkpoint.manifest import Manifest
from dflash_lightning.checkpoint.resume import OnSkip, candidates, parse_source, warn
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.open import open_store
from dflash_lightning.checkpoint.stores.protocol import ObjectStore
from dflash_lightning.checkpoint.stores.settings import StoreSettings

log = logging.getLogger(__name__)
OnProgress = Callable[[int, int], None]
"""Gets the bytes that are here, and the bytes in all."""


def fetch(
    uri: str,
    settings: StoreSettings,
    folder: Path,
    *,
    on_skip: OnSkip | None = None,
    on_progress: OnProgress | None = None,
) -> Path:
    """The path of a file by itself is returned as it is. Of the rest the first checkpoint in question that
    verifies; each that does not is skipped, and said: `on_skip` gets its address and the reason.

    Where several processes fetch, let one resolve the address and give the others the exact one
    (.../step=8-1a2b3c4d): a newer checkpoint may be published between their looks.

    Raises: ValueError for an address that is none; StoreError, of kind "full" with path and bytes.
    """
    source = parse_source(uri)
    if source.which is None:
        if not Path(source.uri).is_file():
            raise FileNotFoundError(f"there is no checkpoint file {source.uri}")
        return Path(source.uri)
    store, prefix = open_store(source.uri, settings)
    for manifest in candidates(store, prefix, source.which, on_skip=on_skip):
        try:
            return fetch_manifest(store, prefix, manifest, folder, on_progress=on_progress)
        except StoreError as error:
            if error.kind not in ("corrupt", "missing"):
                raise
            (on_skip or warn)(store.uri(f"{prefix}/{manifest.name}".lstrip("/")), str(error))
    raise AssertionError("candidates end with an error")


def fetch_manifest(
    store: ObjectStore,
    prefix: str,
    manifest: Manifest,
    folder: Path,
    *,
    on_progress: OnProgress | None = None,
) -> Path:
    """This very checkpoint, or a StoreError of kind "corrupt" or "missing"."""
    done = 0

    def advance(num_bytes: int) -> None:
        nonlocal done
        done += num_bytes
        if on_progress is not None:
            on_progress(done, manifest.size)

    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / f".{manifest.name}.lock"):
        paths = [folder / PurePosixPath(file.key).relative_to(DATA) for file in manifest.files]
        for file, path in zip(manifest.files, paths, strict=True):
            if is_intact(path, file):
                advance(file.size)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            download(store, prefix, file, path, on_bytes=advance)
    return paths[0] if len(paths) == 1 else paths[0].parent


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process of this machine at a time. The lock goes with the process, however it ends."""
    with path.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("waiting for another process of this machine that fetches into %s", path.parent)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
