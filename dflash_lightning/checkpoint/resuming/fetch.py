"""One verified copy of a checkpoint on this machine's disk, however many processes ask for it.

in    an address as `parse_source` understands it, a folder on a local disk
out   the path of a file that torch.load reads; of several shards: the folder of rank=0.ckpt, rank=1.ckpt, ...
law   a path is returned only after every byte behind it was compared with the manifest's checksums
law   a file appears under its name whole or not at all
"""

import fcntl
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dflash_lightning.checkpoint.layout import DATA
from dflash_lightning.checkpoint.manifest import DataFile, Manifest
from dflash_lightning.checkpoint.resuming.download import download, is_intact
from dflash_lightning.checkpoint.resuming.resume import OnSkip, candidates, parse_source, warn
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.open import open_store
from dflash_lightning.checkpoint.stores.protocol import ObjectStore
from dflash_lightning.checkpoint.stores.settings import StoreSettings

log = logging.getLogger(__name__)
OnProgress = Callable[[int, int], None]
"""Gets the bytes that are here, and the bytes in all."""
Files = Callable[[Manifest], Sequence[DataFile]]
"""Which of a checkpoint's files are wanted here."""


@dataclass(frozen=True)
class Fetched:
    """A checkpoint on this machine's disk."""

    path: Path
    """A file for torch.load; of shards their folder."""
    uri: str
    """Of exactly this one, so that other processes get no other: .../step=8-1a2b3c4d; of a file its path."""
    manifest: Manifest | None
    """None for a file by itself."""


def all_files(manifest: Manifest) -> Sequence[DataFile]:
    return manifest.files


@dataclass(frozen=True)
class FilesOfRank:
    """Of a checkpoint in as many shards as there are ranks this rank's own; of any other one everything."""

    rank: int
    world: int

    def __call__(self, manifest: Manifest) -> Sequence[DataFile]:
        files = manifest.files
        return (files[self.rank],) if len(files) == self.world else files


def fetch(
    uri: str,
    settings: StoreSettings,
    folder: Path,
    *,
    on_skip: OnSkip | None = None,
    on_progress: OnProgress | None = None,
    files: Files = all_files,
) -> Path:
    """`fetch_checkpoint` for those who need the path alone."""
    return fetch_checkpoint(uri, settings, folder, on_skip=on_skip, on_progress=on_progress, files=files).path


def fetch_checkpoint(
    uri: str,
    settings: StoreSettings,
    folder: Path,
    *,
    on_skip: OnSkip | None = None,
    on_progress: OnProgress | None = None,
    files: Files = all_files,
) -> Fetched:
    """The first checkpoint in question that verifies; each that does not is skipped, and said: `on_skip` gets
    its address and the reason. The path of a file by itself is returned as it is, unverified.

    Where several processes fetch, let one do so first and give the others its `Fetched.uri`: a newer
    checkpoint may be published between their looks.

    Raises: ValueError for an address that is none; NothingFound; StoreError, of kind "full" with path and
    bytes, "corrupt" when all are broken.
    """
    source = parse_source(uri)
    if source.which is None:
        if not Path(source.uri).is_file():
            raise FileNotFoundError(f"there is no checkpoint file {source.uri}")
        return Fetched(Path(source.uri), source.uri, None)
    store, prefix = open_store(source.uri, settings)
    for looks_left in (1, 0):
        reasons: list[str] = []
        for manifest in candidates(store, prefix, source.which, on_skip=on_skip, reasons=reasons):
            exact = store.uri(join_key(prefix, manifest.name))
            try:
                path = fetch_manifest(store, prefix, manifest, folder, on_progress=on_progress, files=files)
                return Fetched(path, exact, manifest)
            except StoreError as error:
                if error.kind == "missing" and looks_left:
                    break  # retention took it since it was listed, so there is a newer one
                if error.kind not in ("corrupt", "missing"):
                    raise
                reasons.append(str(error))
                (on_skip or warn)(exact, str(error))
    raise AssertionError("candidates end with an error")


def fetch_manifest(
    store: ObjectStore,
    prefix: str,
    manifest: Manifest,
    folder: Path,
    *,
    on_progress: OnProgress | None = None,
    files: Files = all_files,
) -> Path:
    """This very checkpoint, or a StoreError of kind "corrupt" or "missing"."""
    done, wanted = 0, files(manifest)

    def advance(num_bytes: int) -> None:
        nonlocal done
        done += num_bytes
        if on_progress is not None:
            on_progress(done, sum(file.size for file in wanted))

    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / f".{manifest.name}.lock"):
        paths = [folder / PurePosixPath(file.key).relative_to(DATA) for file in wanted]
        for file, path in zip(wanted, paths, strict=True):
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
