"""Page-locked arenas."""

import os

import pytest
import torch

from dflash_lightning.checkpoint.snapshots.arena import Arena
from dflash_lightning.checkpoint.snapshots.arenas import Arenas
from dflash_lightning.checkpoint.snapshots.pinning import _pages, pin, unpin

PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("make", [Arena.shared, Arena.private])
@pytest.mark.parametrize("capacity", [1, PAGE, 10 * PAGE + 7])
def test_what_is_locked_begins_at_a_page_and_ends_with_the_snapshot(make, capacity):
    arena = make(capacity)
    start, size = _pages(arena)
    first = torch.frombuffer(arena.buffer, dtype=torch.uint8).data_ptr()
    assert start % PAGE == 0
    assert first - PAGE < start <= first
    assert start + size == first + capacity
    arena.close()


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_without_a_gpu_nothing_is_locked():
    arena = Arena.private(PAGE)
    assert not pin(arena)
    arena.close()


@pytest.mark.gpu
def test_memory_that_goes_is_unlocked_so_that_what_comes_to_its_place_can_be_locked():
    for _ in range(3):  # the system likes to hand out the same addresses again
        arenas = Arenas(2, 100 * PAGE, shared=True, pin=True)
        assert all(torch.frombuffer(arena.buffer, dtype=torch.uint8).is_pinned() for arena in arenas)
        arenas.close()


@pytest.mark.gpu
def test_an_arena_that_cannot_be_locked_costs_training_nothing(caplog):
    arena = Arena.private(PAGE)
    assert pin(arena)
    assert not pin(arena)  # CUDA refuses to lock twice
    assert "could not be pinned" in caplog.text
    assert torch.ones(1, device="cuda").add(1).item() == 2
    unpin(arena)
    arena.close()
