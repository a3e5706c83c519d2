"""Page-locked arenas, so that copies from a GPU run beside the computation. Never run on a GPU yet.

law   what was locked is unlocked before its memory goes: CUDA would take other memory at the same address for
      the pages it knows, and copy later snapshots into those
law   an arena that cannot be locked costs speed, and nothing else
"""

import logging
import os
from contextlib import suppress
from typing import Any

import torch

from dflash_lightning.checkpoint.snapshots.arena import Arena

log = logging.getLogger(__name__)


def pin(arena: Arena) -> bool:
    """True where it is locked from now on, until `unpin`. False without CUDA."""
    if not torch.cuda.is_available():
        return False
    start, size = _pages(arena)
    code = int(_runtime().cudaHostRegister(start, size, 0))
    if code != 0:
        log.warning("a snapshot buffer could not be pinned (CUDA error %d): copies are slower", code)
        _forget_error()
    return code == 0


def unpin(arena: Arena) -> None:
    """Before `Arena.close`, and when no copy into it is under way."""
    start, _ = _pages(arena)
    if int(_runtime().cudaHostUnregister(start)) != 0:
        _forget_error()


def _pages(arena: Arena) -> tuple[int, int]:
    """Address and bytes of the arena, its header included: mappings begin at a page."""
    address = torch.frombuffer(arena.buffer, dtype=torch.uint8).data_ptr()
    start = address - address % os.sysconf("SC_PAGE_SIZE")
    return start, address + arena.capacity - start


def _forget_error() -> None:
    """CUDA keeps the code of a failed call for whoever looks next: else that is a kernel of training."""
    with suppress(RuntimeError):
        torch.zeros(1, device="cuda")


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
