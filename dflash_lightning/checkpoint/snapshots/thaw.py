"""A snapshot as a state again: tensors that look at the arena, everything else as it was. No copy.

law   torch.save(thaw(frozen, buffer)) stores what torch.save(state) would have stored at the moment of the
      snapshot, except that tensors of a GPU come out as tensors of the CPU
"""

import io
import pickle
from typing import Any

import torch
from torch.storage import TypedStorage, UntypedStorage

from dflash_lightning.checkpoint.snapshots.freezing import StoragePlace
from dflash_lightning.checkpoint.snapshots.snapshot import Frozen


def thaw(frozen: Frozen, buffer: memoryview) -> Any:
    """The state. Its tensors are the buffer: they change with it, and must be gone before it is reused."""
    return _Thawing(frozen, buffer).load()


class _Thawing(pickle.Unpickler):
    def __init__(self, frozen: Frozen, buffer: memoryview) -> None:
        super().__init__(io.BytesIO(buffer[frozen.start : frozen.stop]))
        self._buffer = buffer
        self._storages: dict[int, UntypedStorage] = {}

    def persistent_load(self, pid: StoragePlace) -> TypedStorage | UntypedStorage:
        index, start, size, dtype = pid
        if index not in self._storages:
            self._storages[index] = _storage(self._buffer, start, size)
        storage = self._storages[index]
        if dtype is None:
            return storage
        return TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)  # type: ignore[no-untyped-call]


def _storage(buffer: memoryview, start: int, size: int) -> UntypedStorage:
    if size == 0:  # frombuffer refuses to look at nothing
        return UntypedStorage(0)  # type: ignore[no-untyped-call]
    return torch.frombuffer(buffer, dtype=torch.uint8, offset=start, count=size).untyped_storage()
