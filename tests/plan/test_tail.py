import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dflash_lightning.plan.tail import split_tail


def pieces(batches, world, accumulate):
    """Cost: the sum of the ids, so that a table can steer it."""
    arrays = [np.array(ids) for ids in batches]
    found = split_tail(arrays, lambda ids: float(ids.sum()), world=world, accumulate=accumulate)
    return [(origin, ids.tolist()) for origin, ids in found]


@pytest.mark.parametrize(
    ("batches", "world", "accumulate", "expected"),
    [
        # One batch for four turns: halves, then halves of the halves.
        ([[1, 2, 3, 4]], 2, 2, [(0, [1]), (0, [2]), (0, [3]), (0, [4])]),
        # The costliest batch that can be halved, though the last one costs more.
        ([[1, 2, 3], [4, 5], [99]], 2, 2, [(0, [1, 2, 3]), (1, [4]), (1, [5]), (2, [99])]),
        # Five samples cannot fill eight turns: four pieces, the largest multiple of two.
        ([[1, 2, 3, 4, 5]], 2, 4, [(0, [1, 2]), (0, [3]), (0, [4]), (0, [5])]),
        # Fewer samples than ranks: single samples and a ghost, a copy of the cheapest.
        ([[7, 5]], 3, 4, [(0, [7]), (0, [5]), (0, [~5])]),
        # Three batches of one sample on two ranks: no multiple of two holds them without a ghost.
        ([[3], [2], [1]], 2, 4, [(0, [3]), (1, [2]), (2, [1]), (2, [~1])]),
        # Nothing to do: the batches are a multiple of the world, and no sample can be split off.
        ([[3], [2]], 2, 4, [(0, [3]), (1, [2])]),
    ],
)
def test_the_tail_becomes_a_full_window(batches, world, accumulate, expected):
    assert pieces(batches, world, accumulate) == expected


def halved_slowly(batches, wanted):
    """The rule as it is said: halve the costliest of the pieces that can be, the first of equal ones."""
    found = [(origin, ids) for origin, ids in enumerate(batches)]
    while len(found) < wanted:
        at = max((i for i, (_, ids) in enumerate(found) if len(ids) > 1), key=lambda i: sum(found[i][1]))
        origin, ids = found[at]
        half = (len(ids) + 1) // 2
        found[at : at + 1] = [(origin, ids[:half]), (origin, ids[half:])]
    return found


@given(
    batches=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=9), min_size=1, max_size=5),
    world=st.integers(1, 4),
    accumulate=st.integers(1, 6),
)
def test_halving_follows_the_rule_to_the_letter(batches, world, accumulate):
    """Small ids, so that many pieces cost the same."""
    num_samples = sum(map(len, batches))
    wanted = min(world * accumulate, num_samples // world * world)
    assume(len(batches) <= wanted)
    assert pieces(batches, world, accumulate) == halved_slowly(batches, wanted)


def test_a_window_of_thousands_of_batches_costs_two_calls_a_piece():
    """Cutting it is part of planning: the work must not grow with the square of the window."""
    calls = []
    batch = np.arange(8192)
    found = split_tail([batch], lambda ids: calls.append(1) or float(len(ids)), world=64, accumulate=64)
    assert len(found) == 4096
    assert len(calls) <= 2 * 4096
