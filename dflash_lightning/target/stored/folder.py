"""A folder of hidden states while it is written: shard by shard, complete or not there.

in    whole shards, in any order
out   a folder with shards, index and manifest
law   all is written into `<output>.partial` and renamed once; a shard is there whole or not at all, so a
      killed writer goes on behind its last whole shard, and only with the settings that it began with
"""

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dflash_lightning.differing import differing
from dflash_lightning.target.stored.layout import Layout
from dflash_lightning.target.stored.manifest import StatesManifest, shard_name

INDEX = "index.safetensors"
BEGUN = "begun.json"
"""The manifest of an unfinished folder: what it will be."""
LOCK = "lock"


class UnfinishedStates:
    """Inside `with UnfinishedStates(...) as folder:` put the shards of `folder.missing()`, then publish.

    Whatever ends it early, the whole shards stay for the next try.
    """

    def __init__(self, output: Path, manifest: StatesManifest, layout: Layout) -> None:
        self.output = output
        self.path = output.with_name(f"{output.name}.partial")
        self.manifest = manifest
        self.layout = layout
        self._open = ExitStack()
        self._saving: Future[None] | None = None

    def __enter__(self) -> "UnfinishedStates":
        """Raises ValueError where the output is taken, another process writes it, or it was begun otherwise.

        OSError where the disk has not enough room for what is missing.
        """
        if self.output.exists():
            raise ValueError(
                f"{self.output} already exists; delete it, or choose another folder for the hidden states"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            self._lock(opened)
            self._require_same_beginning()
            self._require_room()
            self._saver = opened.enter_context(ThreadPoolExecutor(max_workers=1))
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def missing(self) -> Iterator[int]:
        """Shards that are not there yet."""
        return (shard for shard in range(self.layout.num_shards) if not self._path(shard).exists())

    def missing_bytes(self) -> int:
        """Bytes of states that are not there yet."""
        return sum(self.layout.tokens(shard) for shard in self.missing()) * self.manifest.token_bytes

    def put(self, shard: int, tensors: Mapping[str, Tensor]) -> None:
        """Saves in the background, one shard at a time; a failure of the shard before is raised here."""
        self.wait()
        self._saving = self._saver.submit(self._save, shard, dict(tensors))

    def wait(self) -> None:
        """Until the last shard that was put is on the disk."""
        if self._saving is not None:
            self._saving.result()

    def publish(self) -> StatesManifest:
        """Index and manifest, then the rename."""
        self.wait()
        shards = [self._path(shard) for shard in range(self.layout.num_shards)]
        _save(self._index(), self.path / INDEX)
        manifest = replace(
            self.manifest,
            shards=tuple(path.stat().st_size for path in shards),
            index_sha256=sha256((self.path / INDEX).read_bytes()).hexdigest(),
        )
        manifest.write(self.path)
        _sync(self.path)
        (self.path / LOCK).unlink()
        self.path.rename(self.output)
        _sync(self.output.parent)
        return manifest

    def _path(self, shard: int) -> Path:
        return self.path / shard_name(shard)

    def _save(self, shard: int, tensors: Mapping[str, Tensor]) -> None:
        samples = torch.from_numpy(self.layout.samples(shard))
        _save({**tensors, "samples": samples}, self._path(shard))

    def _index(self) -> dict[str, Tensor]:
        """Where each sample lies, how long it is, and the checksum of its states."""
        shard, offset = map(torch.from_numpy, self.layout.places())
        checksum = torch.zeros_like(shard)
        for number in range(self.layout.num_shards):
            samples, checksum_of = self._checksums(number)
            checksum[samples] = checksum_of
        lengths = torch.from_numpy(self.layout.lengths)
        return {"shard": shard, "offset": offset, "length": lengths, "checksum": checksum}

    def _checksums(self, shard: int) -> tuple[Tensor, Tensor]:
        try:
            with safe_open(self._path(shard), "pt") as file:
                samples, checksums = file.get_tensor("samples").clone(), file.get_tensor("checksums").clone()
        except (SafetensorError, OSError) as error:
            raise ValueError(
                f"{self._path(shard)} is damaged ({error}): delete it and run again, all other shards stay"
            ) from error
        assert torch.equal(samples, torch.from_numpy(self.layout.samples(shard)))
        return samples, checksums

    def _lock(self, opened: ExitStack) -> None:
        """Held by the process, so that a kill frees it."""
        file = opened.enter_context((self.path / LOCK).open("w"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"another process is writing {self.path}: wait for it, or stop it") from None

    def _require_same_beginning(self) -> None:
        if not (self.path / BEGUN).exists():
            self.manifest.write(self.path, BEGUN)
            return
        begun = StatesManifest.read_from(self.path, BEGUN)
        there, here = (
            {**found.identity.named(), "bytes of a shard": found.shard_bytes}
            for found in (begun, self.manifest)
        )
        if lines := differing(there, here, "there", "here"):
            raise ValueError(
                f"{self.path} was begun with other settings ({'; '.join(lines)}): give the same again to go "
                "on, or delete that folder to begin anew"
            )

    def _require_room(self) -> None:
        needed, free = self.missing_bytes(), shutil.disk_usage(self.path).free
        if needed > free:
            raise OSError(
                f"the hidden states need {needed / 2**30:,.1f} GiB more at {self.path}, where "
                f"{free / 2**30:,.1f} GiB are free: choose a larger disk, tap fewer layers, or prepare less "
                "data"
            )


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Down to the disk under another name, then renamed: a name never stands for half a file."""
    scratch = path.with_name(f".{path.name}")
    try:
        save_file(dict(tensors), scratch)
    except SafetensorError as error:  # it wraps the system's own
        raise OSError(f"{path} could not be written ({error}): make room, then run again to go on") from error
    _sync(scratch)
    scratch.chmod(0o644)  # safetensors makes it private; others may share the folder
    scratch.rename(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
