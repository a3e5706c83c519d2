"""Room for snapshots: taken early, held by one at a time, as much as fits."""

import logging
import os
import resource
import subprocess
import sys

import pytest

from dflash_lightning.checkpoint.snapshots.arena import Arena
from dflash_lightning.checkpoint.snapshots.arenas import Arenas, arena_count, available_bytes

CAPACITY = 1 << 22
CLAIM_ELSEWHERE = (
    "import sys; from dflash_lightning.checkpoint.snapshots.arena import Arena; "
    "arena = Arena.attached(int(sys.argv[1]), int(sys.argv[2])); "
    "print(arena.claim(), arena.number, flush=True); sys.stdin.read()"
)


def claim_elsewhere(arena):
    """Another process that tries to claim it, says what it got, and lives until its input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", CLAIM_ELSEWHERE, str(arena.fd), str(arena.capacity)],
        pass_fds=[arena.fd],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("make", [Arena.shared, Arena.private])
def test_the_memory_is_touched_before_it_is_needed(make):
    data = b"x" * CAPACITY
    arena = make(CAPACITY)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arena.buffer[:] = data
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults < CAPACITY // resource.getpagesize() // 10
    arena.close()


@pytest.mark.parametrize("make", [Arena.shared, Arena.private])
def test_an_arena_starts_empty_and_has_one_holder_at_a_time(make):
    arena = make(100)
    assert (arena.capacity, len(arena.buffer), arena.number) == (100, 100, 0)
    assert arena.claim()
    assert not arena.claim()
    arena.release()
    assert arena.claim()
    arena.release()
    arena.close()
    arena.close()  # twice harms nobody


def test_a_snapshot_is_given_up_only_where_it_is_still_inside_and_nobody_holds_it():
    arena = Arena.private(100)
    arena.number = 7
    assert not arena.retire(6)  # another one is inside
    assert arena.claim()
    assert not arena.retire(7)
    arena.release()
    assert arena.retire(7)
    assert arena.number == 0
    arena.close()


def test_a_claim_excludes_other_processes_and_ends_with_the_process_that_has_it():
    arena = Arena.shared(100)
    arena.number = 41
    with claim_elsewhere(arena) as other:
        assert other.stdout.readline().split() == ["True", "41"]
        assert not arena.claim()
        other.kill()
        other.wait()
        assert arena.claim()
    with claim_elsewhere(arena) as other:
        assert other.stdout.readline().split() == ["False", "41"]
        other.stdin.close()
    arena.close()


@pytest.mark.parametrize(
    ("capacity", "available", "count"),
    [
        (10, 60, 3),  # half stays free
        (10, 59, 2),
        (10, 20, 2),  # tight, but one can be uploaded while the next is taken
    ],
)
def test_two_arenas_where_memory_is_short(capacity, available, count):
    assert arena_count(capacity, available) == count


def test_no_room_for_two_snapshots_is_an_error():
    with pytest.raises(MemoryError, match="need room for 2 snapshots of 10 bytes each, but only 19 bytes"):
        arena_count(10, 19)


def test_one_arena_is_refused():
    with pytest.raises(ValueError, match="needs 2 arenas or more, got 1"):
        Arenas(1, 100, shared=False)


def test_available_memory_is_that_of_this_machine():
    assert 0 < available_bytes() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("shared", [True, False])
def test_a_larger_state_takes_a_larger_arena_and_says_so(shared, caplog):
    arenas = Arenas(2, 100, shared=shared)
    with caplog.at_level(logging.WARNING):
        larger = arenas.grow(1, 1000)
    assert arenas[1] is larger
    assert larger.capacity == 1062  # a sixteenth to spare
    assert arenas[0].capacity == 100
    assert "grew from at most 100 to 1000 bytes" in caplog.text
    arenas.close()


def test_an_arena_that_cannot_grow_stays_as_it_was():
    arenas = Arenas(2, 100, shared=False)
    with pytest.raises(OSError, match="bytes are not available"):
        arenas.grow(0, 1 << 60)
    arenas[0].buffer[0] = 1
    assert arenas[0].capacity == 100
    arenas.close()
