"""How ranks tell each other in the background that a shard is stored. No collective: nobody waits in step.

in    names and short texts
law   once put, a text is seen by every rank that asks for it; asking never waits
"""

import json
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

from dflash_lightning.checkpoint.manifest import DataFile, Part
from dflash_lightning.checkpoint.stores.errors import StoreError

POLL_S = 0.05
"""Pause between two looks; nothing but a background thread feels it."""


@runtime_checkable
class Confirmations(Protocol):
    """torch.distributed.TCPStore through `OverTCP`; a dictionary through `OverMapping`."""

    def put(self, name: str, text: str) -> None: ...

    def get(self, name: str) -> str | None:
        """At once; None where nothing was put yet."""
        ...


class OverMapping:
    """Between threads of one process, or a multiprocessing manager's dict."""

    def __init__(self, mapping: MutableMapping[str, str]) -> None:
        self._mapping = mapping

    def put(self, name: str, text: str) -> None:
        self._mapping[name] = text

    def get(self, name: str) -> str | None:
        return self._mapping.get(name)


class OverTCP:
    """A `torch.distributed.TCPStore` of this purpose alone: give each thread that uses one its own client."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def put(self, name: str, text: str) -> None:
        with _reached():
            self._store.set(name, text)

    def get(self, name: str) -> str | None:
        with _reached():
            return self._store.get(name).decode() if self._store.check([name]) else None


@contextmanager
def _reached() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # what torch makes of every fault of the connection
        reason = str(error).partition("\n")[0]
        raise StoreError(
            f"rank 0, where all ranks meet, cannot be reached: {reason}", kind="other"
        ) from error


@dataclass(frozen=True)
class ShardReport:
    """What one rank says: the shard it has stored and verified, or why it could not."""

    rank: int
    file: DataFile | None
    reason: str = ""

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> "ShardReport":
        values = json.loads(text)
        file = values["file"]
        if file is not None:
            file["parts"] = tuple(Part(**part) for part in file["parts"])
            file = DataFile(**file)
        return ShardReport(values["rank"], file, values["reason"])


def wait_for(
    confirmations: Confirmations,
    name: str,
    deadline: float,
    *,
    stop: Callable[[], bool] = lambda: False,
    sleep: Callable[[float], None] = time.sleep,
) -> str | None:
    """The text, or None once the deadline (of `time.monotonic`) is over or `stop` says so."""
    while (text := confirmations.get(name)) is None:
        if stop() or time.monotonic() >= deadline:
            return None
        sleep(POLL_S)
    return text
