"""What checkpoints need of a storage place, and nothing more. Memory, a directory and S3 all keep these laws.

in    keys: relative paths with "/" between their parts (`stores/keys.py` says which are refused)
out   bytes, facts, or a StoreError
law   an object is there whole or not at all: `put` and `Upload.finish` are the only commit points, and a
      reader never sees half of either; a failed one leaves what was there before
law   every call may be made from any thread
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from dflash_lightning.checkpoint.stores.errors import StoreError

BytesLike = bytes | bytearray | memoryview


@dataclass(frozen=True)
class ObjectFacts:
    """What the store knows of one object."""

    key: str
    size: int
    """Bytes."""
    modified: float
    """Seconds since 1970, by the store's clock."""
    crc32: str | None
    """Of the whole object, 8 hex digits; None where the store keeps none. `list` never has it."""
    etag: str | None


@dataclass(frozen=True)
class PendingUpload:
    """An upload that was begun and neither finished nor aborted: invisible, but it takes space."""

    key: str
    upload_id: str
    started: float
    """Seconds since 1970."""


@runtime_checkable
class Upload(Protocol):
    """An object on its way. Only `finish` makes it visible: leaving the scope or garbage collection never
    does, so that a save that fails half-way cannot replace a good object by half of another."""

    def write(self, data: BytesLike) -> int:
        """Bytes taken, always all. They are copied: the caller may reuse its buffer at once.

        Raises: the StoreError of an earlier part, as soon as it is known.
        """
        ...

    def flush(self) -> None:
        """Nothing: `torch.save` calls it at its end, which must not commit."""
        ...

    def finish(self) -> ObjectFacts:
        """Commit. The crc32 returned is that of the bytes written, and the store has confirmed what it can
        (length always, checksum where it keeps one).

        Raises: StoreError; the object may then be there only if the answer was lost, never in part.
        """
        ...

    def abort(self) -> None:
        """Give up and free the space. May be called at any time, also twice and after a failed `finish`.

        Never raises a StoreError, since it runs while another one is on its way: what could not be freed is
        logged, and `list_uploads` shows it.
        """
        ...

    def pending(self) -> PendingUpload:
        """What `list_uploads` shows of it until it is finished or aborted."""
        ...

    def failure(self) -> StoreError | None:
        """Why `write` failed, if it did: `torch.save` replaces what `write` raises by an error of its own
        (pytorch: "unexpected pos"), so its caller must look here."""
        ...


@runtime_checkable
class ObjectStore(Protocol):
    def put(self, key: str, data: bytes, *, only_if_absent: bool = False) -> None:
        """Write a small object at once.

        Raises: StoreError, of kind "conflict" when something is there and `only_if_absent` asks for nothing.
        Some servers ignore that wish, so it must never be relied on alone.
        """
        ...

    def open_upload(self, key: str, *, size_hint: int) -> Upload:
        """Begin a large object of about `size_hint` bytes, 0 if unknown; it may become larger."""
        ...

    def read(self, key: str, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes [start, stop) of an object, to its end if None; fewer where it ends earlier.

        Raises: StoreError, of kind "missing" when there is no object.
        """
        ...

    def head(self, key: str) -> ObjectFacts | None:
        """None when there is no object."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectFacts]:
        """All objects whose key starts with these characters, in key order, however many pages that takes."""
        ...

    def delete(self, keys: Sequence[str]) -> dict[str, StoreError]:
        """Delete each; what is not there counts as deleted. The result names those that remain, and why."""
        ...

    def list_uploads(self, prefix: str) -> Sequence[PendingUpload]:
        """Uploads begun by anyone under these characters and still pending."""
        ...

    def abort_upload(self, pending: PendingUpload) -> None:
        """Free the space of a pending upload; nothing happens if it is gone."""
        ...

    def uri(self, key: str) -> str:
        """The address of a key, for people: no secret in it."""
        ...

    def quick(self) -> "ObjectStore":
        """The same place with few attempts and short timeouts, for checks that a person waits for."""
        ...
