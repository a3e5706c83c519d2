import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.plan.batches import PoolSorted, RandomOrder, golden_walk, sort_pools
from dflash_lightning.plan.cut import Limits
from dflash_lightning.plan.packing import ragged_indices

WIDE = 10**9


def rows_of(packed, values):
    """The queue as lists of values, batch by batch."""
    return [part.tolist() for part in np.split(np.asarray(values)[packed.turn], np.cumsum(packed.rows)[:-1])]


def pack(packing, lengths, blocks=None, *, rows=WIDE, tokens=WIDE, block_tokens=WIDE):
    lengths = np.array(lengths)
    blocks = np.ones_like(lengths) if blocks is None else np.array(blocks)
    limits = Limits(rows=rows, tokens=tokens, block_tokens=block_tokens)
    return packing.pack(lengths, blocks, limits, key=5)


@pytest.mark.parametrize(
    ("limits", "batches"),
    [
        ({"rows": 2}, [[3, 9], [4, 4], [5]]),
        ({"tokens": 18}, [[3, 9], [4, 4, 5]]),  # rows x longest, not the sum: a third row would cost 27
        ({"block_tokens": 30}, [[3, 9, 4], [4, 5]]),
        ({"block_tokens": 5}, [[3], [9], [4], [4], [5]]),  # each sample alone is too much, and runs alone
        ({}, [[3, 9, 4, 4, 5]]),
    ],
)
def test_random_order_closes_a_batch_when_the_next_sample_is_too_much(limits, batches):
    lengths = [3, 9, 4, 4, 5]
    assert rows_of(pack(RandomOrder(), lengths, [10] * 5, **limits), lengths) == batches


@pytest.mark.parametrize(
    ("limits", "batches"),
    [
        ({"rows": 2}, [[5, 4], [3], [9, 4]]),
        ({"tokens": 18}, [[5, 4, 4], [9, 3]]),
        ({"block_tokens": 30}, [[4, 3], [9, 5, 4]]),
        ({"block_tokens": 5}, [[3], [9], [5], [4], [4]]),
        ({}, [[9, 5, 4, 4, 3]]),
    ],
)
def test_pool_sorting_puts_like_lengths_together(limits, batches):
    lengths = [3, 9, 4, 4, 5]
    found = rows_of(pack(PoolSorted(), lengths, [10] * 5, **limits), lengths)
    assert sorted(found) == sorted(by_hand(lengths, [10] * 5, pool_rows=WIDE, **limits))


def by_hand(lengths, blocks, *, pool_rows, rows=WIDE, tokens=WIDE, block_tokens=WIDE):
    """Pools, longest first, each batch as large as the limits allow; one sample at a time."""
    batches = []
    for start in range(0, len(lengths), pool_rows):
        pool = range(start, min(start + pool_rows, len(lengths)))
        batches.append([])
        for i in sorted(pool, key=lambda i: -lengths[i]):
            grown = [*batches[-1], i]
            fits = (
                len(grown) <= rows
                and len(grown) * max(lengths[j] for j in grown) <= tokens
                and sum(blocks[j] for j in grown) <= block_tokens
            )
            if fits or not batches[-1]:
                batches[-1] = grown
            else:
                batches.append([i])
    return [[lengths[i] for i in batch] for batch in batches]


SAMPLES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 30)), min_size=1, max_size=60)
LIMITS = st.fixed_dictionaries(
    {"rows": st.integers(1, 9), "tokens": st.integers(40, 200), "block_tokens": st.integers(1, 90)}
)


@settings(deadline=None)
@given(SAMPLES, LIMITS, st.integers(1, 4))
def test_pool_sorting_is_the_loop_vectorised(samples, limits, pool_batches):
    lengths, blocks = (list(column) for column in zip(*samples, strict=True))
    typical = [limits["rows"], len(lengths) * limits["tokens"] // sum(lengths)]
    if sum(blocks):
        typical.append(len(lengths) * limits["block_tokens"] // sum(blocks))
    expected = by_hand(lengths, blocks, pool_rows=pool_batches * max(1, min(typical)), **limits)
    found = rows_of(pack(PoolSorted(pool_batches=pool_batches), lengths, blocks, **limits), lengths)
    assert sorted(found) == sorted(expected)


@settings(deadline=None)
@given(SAMPLES, LIMITS)
def test_random_order_is_the_loop_in_the_order_given(samples, limits):
    lengths, blocks = (list(column) for column in zip(*samples, strict=True))
    batches = [[0]]
    for i in range(1, len(lengths)):
        grown = [*batches[-1], i]
        fits = (
            len(grown) <= limits["rows"]
            and len(grown) * max(lengths[j] for j in grown) <= limits["tokens"]
            and sum(blocks[j] for j in grown) <= limits["block_tokens"]
        )
        if fits:
            batches[-1] = grown
        else:
            batches.append([i])
    assert rows_of(pack(RandomOrder(), lengths, blocks, **limits), range(len(lengths))) == batches


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 70))
def test_pools_are_sorted_longest_first_and_equal_lengths_keep_their_order(lengths, pool_rows):
    pools = [range(len(lengths))[at : at + pool_rows] for at in range(0, len(lengths), pool_rows)]
    by_hand = [i for pool in pools for i in sorted(pool, key=lambda i: -lengths[i])]
    assert sort_pools(np.array(lengths), pool_rows).tolist() == by_hand
    far_apart = np.array(lengths) * 1_000_003  # above sixteen bits
    assert sort_pools(far_apart, pool_rows).tolist() == by_hand


def test_every_stretch_of_a_sorted_queue_holds_short_and_long_batches():
    """Of 12 batches in a row, each third of the lengths gets 4, give or take one."""
    lengths = np.arange(1, 301)
    queue = golden_walk(lengths, key=9)
    assert sorted(queue.tolist()) == list(range(300))
    thirds = (lengths[queue] - 1) // 100
    counts = [np.bincount(thirds[i : i + 12], minlength=3) for i in range(289)]
    assert np.min(counts) >= 3
    assert np.max(counts) <= 5


def test_the_walk_starts_elsewhere_in_another_epoch():
    assert golden_walk(np.arange(50), key=1).tolist() != golden_walk(np.arange(50), key=2).tolist()


def test_ragged_indices_cover_the_ranges_in_turn():
    assert ragged_indices(np.array([4, 0]), np.array([2, 3])).tolist() == [4, 5, 0, 1, 2]
    assert ragged_indices(np.array([], np.int64), np.array([], np.int64)).tolist() == []


def test_a_pool_needs_a_batch():
    with pytest.raises(
        ValueError, match="pool_batches must be at least 1, got 0; .* set packing to RandomOrder"
    ):
        PoolSorted(pool_batches=0)
