import numpy as np
import pytest

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
