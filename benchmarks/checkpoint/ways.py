"""The ways to save that are compared, with one interface.

`save` is what the training thread waits for; `settled` is asked behind every step until it is true: the
checkpoint is then where the way promises it to be.
"""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.plugins.io import AsyncCheckpointIO

from benchmarks.checkpoint.memory import own_bytes
from dflash_lightning.checkpoint.job import Retention, SaveJob
from dflash_lightning.checkpoint.session import Memory, Session
from dflash_lightning.checkpoint.writing.writer_process import ProcessChannel
from tests.s3.server import Weed

PART_BYTES = 16 << 20
"""As by default; the tests use smaller ones."""
Dump = Callable[[int], dict[str, Any]]


class Way(Protocol):
    def save(self, step: int, dump: Dump) -> None: ...

    def settled(self) -> bool: ...

    def helper_bytes(self) -> int:
        """Of other processes that work for it."""
        ...

    def close(self) -> None: ...


class Ours:
    """Session, as S3Checkpoint uses it, to the S3 server."""

    def __init__(self, place: Weed, state: dict[str, Any], *, process: bool) -> None:
        name = "process" if process else "thread"
        memory = Memory(process=process)
        self._session = Session(
            f"s3://{place.bucket}/{name}", place.settings(part_bytes=PART_BYTES), name, memory
        )
        self._session.prepare(state)
        self._queued = 0.0

    def save(self, step: int, dump: Dump) -> None:
        job = SaveJob(step=step, epoch=0, kind="step", run_id=self._session.run_id, retention=Retention())
        assert self._session.save(job, dump(step)), "refused"

    def settled(self) -> bool:
        self._session.poll()
        if self._session.problem:
            raise self._session.problem
        return self._session.metrics()["checkpoint/queue"] == 0

    def helper_bytes(self) -> int:
        channel = self._session._writer.channel if self._session._writer else None
        return own_bytes(channel.pid) if isinstance(channel, ProcessChannel) else 0

    def close(self) -> None:
        self._session.close()


class Blocking:
    """Done when `save` returns."""

    def __init__(self, store: Callable[[dict[str, Any]], None]) -> None:
        self._store = store

    def save(self, step: int, dump: Dump) -> None:
        self._store(dump(step))

    def settled(self) -> bool:
        return True

    def helper_bytes(self) -> int:
        return 0

    def close(self) -> None:
        pass


class Lightnings(Blocking):
    """AsyncCheckpointIO around a plugin: clones every tensor on the calling thread, then one thread saves."""

    def __init__(self, inner: TorchCheckpointIO, path: Path) -> None:
        self._io = AsyncCheckpointIO(inner)
        super().__init__(lambda state: self._io.save_checkpoint(state, path))

    def settled(self) -> bool:
        return self._io._executor is None or self._io._executor._work_queue.empty() and self._idle()

    def _idle(self) -> bool:
        """Its thread waits for work: the executor counts such threads."""
        assert self._io._executor is not None
        semaphore = self._io._executor._idle_semaphore
        if free := semaphore.acquire(blocking=False):
            semaphore.release()
        return free

    def close(self) -> None:
        self._io.teardown()


class UploadIO(TorchCheckpointIO):
    """What one writes to get checkpoints into a bucket: torch.save into memory, upload_fileobj."""

    def __init__(self, place: Weed) -> None:
        self._place = place
        self._client = place.client()

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        file = io.BytesIO()
        torch.save(checkpoint, file)
        file.seek(0)
        self._client.upload_fileobj(file, self._place.bucket, f"peer/{Path(path).name}")


def open_way(name: str, place: Weed, folder: Path, state: dict[str, Any]) -> Way:
    if name in ("ours, process", "ours, thread"):
        return Ours(place, state, process=name == "ours, process")
    upload = UploadIO(place)
    return {
        "torch.save to disk": lambda: Blocking(lambda state: torch.save(state, folder / "plain.ckpt")),
        "torch.save, upload_fileobj": lambda: Blocking(lambda s: upload.save_checkpoint(s, "sync.ckpt")),
        "AsyncCheckpointIO to disk": lambda: Lightnings(TorchCheckpointIO(), folder / "lightning.ckpt"),
        "AsyncCheckpointIO, upload_fileobj": lambda: Lightnings(upload, Path("lightning.ckpt")),
    }[name]()


WAYS = (
    "ours, process",
    "ours, thread",
    "torch.save to disk",
    "AsyncCheckpointIO to disk",
    "torch.save, upload_fileobj",
    "AsyncCheckpointIO, upload_fileobj",
)
