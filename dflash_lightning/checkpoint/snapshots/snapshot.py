"""The state of a training run, copied once into an arena while the training thread waits.

in    any state that torch.save takes: nested containers, tensors, numpy arrays, plain Python
out   a Frozen: where in the arena the copy is. `thaw` makes the state of it again, in any process
law   one copy of each distinct storage, so ties and views survive as torch.save keeps them
law   what is changed after `take_snapshot` returns does not show: everything that is no tensor is pickled
      at once
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dflash_lightning.checkpoint.snapshots.arena import Arena
from dflash_lightning.checkpoint.snapshots.freezing import Layout, plan_snapshot


@dataclass(frozen=True)
class Frozen:
    """A snapshot inside an arena: where its pickle is. Small, so that it can travel through a pipe."""

    start: int
    stop: int


@dataclass(frozen=True)
class Copying:
    """A copy that a GPU may still be making. Until it is done, the arena is not to be handed on."""

    frozen: Frozen
    event: torch.cuda.Event | None = None

    def done(self) -> bool:
        """Never waits."""
        return self.event is None or bool(self.event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        if self.event is not None:
            self.event.synchronize()


def take_snapshot(state: Any, arena: Arena) -> Frozen:
    """Copy the state. Raises: ValueError for a state that cannot be saved or does not fit."""
    copying = copy_state(plan_snapshot(state), arena)
    copying.wait()
    return copying.frozen


def copy_state(layout: Layout, arena: Arena) -> Copying:
    """Fill the arena. For storages on a GPU, the copies run on a stream of their own, and the computation
    that is launched after this call waits for them on the device, not here."""
    if layout.num_bytes > arena.capacity:
        raise ValueError(f"a snapshot of {layout.num_bytes} bytes does not fit into {arena.capacity}")
    target = torch.frombuffer(arena.buffer, dtype=torch.uint8)
    if any(storage.device.type == "cuda" for storage in layout.storages):
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            _copy_storages(layout, target)
            event = stream.record_event()
        torch.cuda.current_stream().wait_event(event)
    else:
        event = None
        _copy_storages(layout, target)
    arena.buffer[layout.stop : layout.num_bytes] = layout.skeleton
    return Copying(Frozen(layout.stop, layout.num_bytes), event)


def _copy_storages(layout: Layout, target: Tensor) -> None:
    for storage, start in zip(layout.storages, layout.starts, strict=True):
        if storage.nbytes():
            source = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            target[start : start + storage.nbytes()].copy_(source, non_blocking=True)
