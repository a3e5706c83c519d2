import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.decoding.lookup import lookup_rounds, lookup_streaks


def rounds_by_hand(prompt, text, block_size, max_ngram=3):
    """The decoding loop itself, looking everything up afresh each round."""
    known, rest, rounds = [*prompt, text[0]], list(text[1:]), []
    while rest:
        proposal = propose(known, block_size - 1, max_ngram)
        right = 0
        while right < min(len(proposal), len(rest)) and proposal[right] == rest[right]:
            right += 1
        committed = min(right + 1, len(rest))
        rounds.append(committed)
        known, rest = known + rest[:committed], rest[committed:]
    return tuple(rounds)


def propose(known, count, max_ngram):
    for n in range(min(max_ngram, len(known)), 0, -1):
        for end in range(len(known) - 1, n - 1, -1):  # the most recent occurrence before the ending itself
            if known[end - n : end] == known[-n:]:
                return known[end : end + count]
    return []


@pytest.mark.parametrize(
    ("prompt", "text", "streaks"),
    [
        ([1, 2, 3, 4, 5], [1, 2, 3, 4, 9], [3, 2, 1, 0]),  # copies the prompt, then leaves it
        ([7], [8, 9, 6], [0, 0]),  # nothing was said before
        ([1, 5, 1, 6], [1, 6, 0], [1, 0]),  # the most recent 1 was followed by 6
        ([1, 2, 9, 3, 2, 8], [1, 2, 9, 0], [2, 1, 0]),  # (1, 2) beats the more recent 2
        ([4], [4, 4, 4, 4], [1, 1, 1]),  # only what is known can be proposed
    ],
)
def test_streaks(prompt, text, streaks):
    assert lookup_streaks(prompt, text, block_size=4) == streaks


@given(
    st.lists(st.integers(0, 2), max_size=12),
    st.lists(st.integers(0, 2), min_size=1, max_size=25),
    st.integers(1, 6),
)
def test_rounds_are_those_of_the_loop(prompt, text, block_size):
    assert lookup_rounds(prompt, text, block_size=block_size) == rounds_by_hand(prompt, text, block_size)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.integers(2, 5))
def test_the_future_is_not_used(ids, block_size):
    text, other = ids, [*ids[:-1], 9]
    streaks, changed = (lookup_streaks([], known, block_size=block_size) for known in (text, other))
    for anchor, (one, two) in enumerate(zip(streaks, changed, strict=True)):
        assert one == two or anchor + max(one, two) == len(ids) - 1  # only tokens compared with the last one
