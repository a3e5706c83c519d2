import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.plan.rng import draws, hash_ids, key, permutation


def splitmix_by_hand(state):
    """The published generator's next output, in plain integers."""
    z = (state + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_the_hash_is_splitmix64():
    """First outputs of the reference implementation for the seed 1234567."""
    state, published = 1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423]
    states = [(state + i * 0x9E3779B97F4A7C15) % 2**64 for i in range(3)]
    assert [splitmix_by_hand(s) for s in states] == published


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(-5, 2**62), max_size=5))
def test_hashing_an_array_is_hashing_each_id(purpose, ids):
    by_hand = [splitmix_by_hand(purpose ^ (i % 2**64)) for i in ids]
    assert hash_ids(purpose, np.array(ids, np.int64)).tolist() == by_hand


@given(st.integers(0, 50), st.integers(0, 50))
def test_seed_and_epoch_do_not_add_up(seed, epoch):
    assert key(seed, epoch + 1) != key(seed + 1, epoch)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((0, 1), (1, 0)),
        ((1,), (1, 0)),  # a longer path is another purpose
        (("order",), ("queue",)),
        (("ab", "c"), ("a", "bc")),
        ((-1,), (1,)),
    ],
)
def test_purposes_have_their_own_keys(one, other):
    assert key(*one) != key(*other)


def test_a_key_never_changes():
    """A resumed run recomputes its order: these values are part of the format of a checkpoint."""
    assert key(0, 0, "order") == 17375787885154061034
    assert permutation(key(7, "x"), np.arange(8)).tolist() == [6, 3, 1, 4, 2, 5, 0, 7]


@given(st.sets(st.integers(0, 10**9), max_size=50), st.integers(0, 2**64 - 1))
def test_a_permutation_holds_each_id_once_whatever_order_they_come_in(ids, purpose):
    shuffled = permutation(purpose, np.array(sorted(ids), np.int64))
    assert set(shuffled.tolist()) == ids
    assert len(shuffled) == len(ids)
    assert permutation(purpose, np.array(sorted(ids, reverse=True), np.int64)).tolist() == shuffled.tolist()


def test_permutations_are_uniform():
    """All 24 orders of 4 ids about equally often: each count is within 5 sigma of 250."""
    orders = [tuple(permutation(key(i), np.arange(4)).tolist()) for i in range(6_000)]
    _, counts = np.unique(np.array(orders), axis=0, return_counts=True)
    assert len(counts) == 24
    assert abs(counts - 250).max() < 5 * 250**0.5


def test_draws_do_not_depend_on_how_many_are_taken():
    many = list(draws(3, 70_000))  # longer than one chunk
    assert many[:10] == list(draws(3, 10))
    assert many == hash_ids(3, np.arange(70_000)).tolist()
