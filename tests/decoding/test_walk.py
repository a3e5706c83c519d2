"""Rounds foretold on a known text equal the rounds really decoded (field.md section 3, case 10)."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.decoding.chain import decode_chain
from dflash_lightning.decoding.teacher import teacher_forced_streaks
from dflash_lightning.decoding.walk import first_rounds, walk_rounds
from dflash_lightning.target.model import Target
from tests.decoding.conftest import LENGTH
from tests.decoding.drafters import BLOCK, random_drafter


def foretold(target, drafter, prompt, text, **options):
    return teacher_forced_streaks(target, drafter, [*prompt, *text], len(prompt), **options)


@pytest.mark.parametrize("block_size", [4, 3, 1])
def test_foretold_rounds_are_the_decoded_rounds(target, memorising, texts, block_size):
    for prompt, text in texts.items():
        streaks = foretold(target, memorising, prompt, text, block_size=block_size)
        decoded = decode_chain(target, memorising, prompt, max_new_tokens=LENGTH, block_size=block_size)
        assert walk_rounds(streaks) == decoded.rounds


def test_the_drafter_above_is_neither_hopeless_nor_perfect(target, memorising, texts):
    streaks = [
        streak for prompt, text in texts.items() for streak in foretold(target, memorising, prompt, text)
    ]
    assert {0, BLOCK - 1} <= set(streaks)
    assert len(set(streaks)) > 2


def test_corrupted_features_spoil_foretelling_and_decoding_alike(target, memorising, texts):
    """The same weights on taps in reverse order: both numbers change, and still agree."""
    spoilt = random_drafter(target)
    spoilt.load_state_dict(memorising.state_dict())
    spoilt.config = dataclasses.replace(memorising.config, target_layer_ids=(5, 3, 1))
    changed = 0
    for prompt, text in texts.items():
        rounds = walk_rounds(foretold(target, spoilt, prompt, text))
        assert rounds == decode_chain(target, spoilt, prompt, max_new_tokens=LENGTH).rounds
        changed += rounds != walk_rounds(foretold(target, memorising, prompt, text))
    assert changed > 0


def test_states_of_another_text_are_noticed(target, memorising, texts):
    """If streaks were computed from wrong states, they would not be those of decoding."""

    class Shifted(Target):
        def tapped_states(self, input_ids, taps, *, final=False):
            states = super().tapped_states(input_ids, taps, final=final)
            return dataclasses.replace(states, taps=torch.roll(states.taps, 1, dims=1))

    wrong = Shifted(target.model)
    differing = [
        foretold(wrong, memorising, *item) != foretold(target, memorising, *item) for item in texts.items()
    ]
    assert any(differing)


def test_group_size_changes_nothing(target, memorising, texts):
    prompt, text = next(iter(texts.items()))
    whole = foretold(target, memorising, prompt, text)
    assert [foretold(target, memorising, prompt, text, anchors_at_once=n) for n in (1, 5)] == [whole, whole]


def test_streaks_end_with_the_text(target, memorising, texts):
    prompt, text = next(iter(texts.items()))
    streaks = foretold(target, memorising, prompt, text)
    assert len(streaks) == LENGTH - 1
    assert all(streak <= LENGTH - 1 - anchor for anchor, streak in enumerate(streaks))
    assert foretold(target, memorising, prompt, text[:1]) == []


@pytest.mark.parametrize(
    ("streaks", "rounds"),
    [
        ([], ()),  # the prefill's token is the whole text
        ([0], (1,)),
        ([3, 9, 9, 9, 1, 9], (4, 2)),  # anchors at 0, then 4
        ([3, 0, 0], (3,)),  # nothing is left for a fourth token
        ([0, 0, 0], (1, 1, 1)),
    ],
)
def test_walk(streaks, rounds):
    assert walk_rounds(streaks) == rounds


@given(st.lists(st.integers(0, 7), max_size=60))
def test_walk_covers_the_text_exactly(streaks):
    rounds = walk_rounds(streaks)
    assert sum(rounds) == len(streaks)
    assert all(1 <= committed <= 8 for committed in rounds)


@pytest.mark.parametrize(
    ("new_tokens", "kept"),
    [(1, ()), (2, (1,)), (4, (3,)), (5, (3, 1)), (8, (3, 4)), (9, (3, 4, 1)), (99, (3, 4, 2))],
)
def test_first_rounds_cut_the_last_one(new_tokens, kept):
    assert first_rounds((3, 4, 2), new_tokens=new_tokens) == kept


def test_first_rounds_are_those_of_a_shorter_decoding(target, memorising, texts):
    prompt = next(iter(texts))
    long = decode_chain(target, memorising, prompt, max_new_tokens=LENGTH).rounds
    for limit in (1, 6, 11):
        short = decode_chain(target, memorising, prompt, max_new_tokens=limit).rounds
        assert first_rounds(long, new_tokens=limit) == short
