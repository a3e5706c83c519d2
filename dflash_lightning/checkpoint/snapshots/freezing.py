"""A state taken apart, before a byte of it is copied: the storages, and a pickle of all the rest.

in    any state that torch.save takes
out   a Layout: where each distinct storage goes, and the pickle, with places instead of storages
law   tensors reduce themselves as they do for torch.save, so what that keeps is kept here: ties, views,
      parameters, sparse and quantised tensors
"""

import io
import pickle
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor
from torch.storage import TypedStorage, UntypedStorage
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

ALIGNMENT = 64
"""Bytes; a storage starts at a multiple, as allocators promise it."""
_PLAIN: Final = frozenset({int, float, bool, str, bytes, type(None), dict, list, tuple, set})
StoragePlace = tuple[int, int, int, torch.dtype | None]
"""Index, first byte, size in bytes, element type: what stands for a storage in the pickle."""


@dataclass
class Layout:
    """What goes where, before anything is copied. It keeps the storages alive."""

    skeleton: bytes = b""
    storages: list[UntypedStorage] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    stop: int = 0
    """First byte after the storages; the pickle goes there."""

    @property
    def num_bytes(self) -> int:
        return self.stop + len(self.skeleton)


def plan_snapshot(state: Any) -> Layout:
    """Pickle all but the bytes of storages, and give each distinct storage its place.

    Raises: ValueError, naming what cannot be saved.
    """
    layout, file = Layout(), io.BytesIO()
    try:
        _Freezing(file, layout).dump(state)
    except (pickle.PicklingError, TypeError, AttributeError, NotImplementedError) as error:
        raise ValueError(
            f"the training state cannot be saved: {error}; keep such objects out of state_dict()"
        ) from error
    layout.skeleton = file.getvalue()
    return layout


class _Freezing(pickle.Pickler):
    def __init__(self, file: io.BytesIO, layout: Layout) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._layout = layout
        self._index: dict[int, int] = {}
        self._dtypes: dict[int, torch.dtype] = {}

    def persistent_id(self, obj: Any) -> StoragePlace | None:
        if type(obj) in _PLAIN:
            return None
        if isinstance(obj, TypedStorage):
            return self._place(obj._untyped_storage, obj.dtype)
        if isinstance(obj, UntypedStorage):
            return self._place(obj, None)
        if isinstance(obj, Tensor) and is_traceable_wrapper_subclass(obj):
            raise TypeError(
                f"a {type(obj).__name__} of shape {tuple(obj.shape)} is no plain tensor; save sharded state "
                "as shards, or gather it with full_state_dict"
            )
        return None

    def _place(self, storage: UntypedStorage, dtype: torch.dtype | None) -> StoragePlace:
        index = self._index.setdefault(storage._cdata, len(self._layout.storages))
        if index == len(self._layout.storages):
            self._layout.storages.append(storage)  # alive from here on, so nothing else gets its identity
            self._layout.starts.append(-(-self._layout.stop // ALIGNMENT) * ALIGNMENT)
            self._layout.stop = self._layout.starts[-1] + storage.nbytes()
        element = dtype or torch.uint8
        if self._dtypes.setdefault(index, element) != element and storage.nbytes():
            raise TypeError(
                f"the same memory appears as {self._dtypes[index]} and as {element}, which torch.save does "
                "not keep; save one of them"
            )
        return index, self._layout.starts[index], storage.nbytes(), dtype
