"""Distributions as transformers warps them, exact draws, and texts that do not depend on how they were
drafted."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from dflash_lightning.decoding import sampling as module
from dflash_lightning.decoding.chain import decode_chain
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.decoding.sampling import (
    PositionLuck,
    Sampling,
    TokenChoice,
    draw,
    probabilities,
)
from tests.decoding.drafters import greedy_text, prompts, random_drafter

PROMPT = prompts(1)[0]


def warped(logits, temperature, top_k, top_p):
    for warper in (
        TemperatureLogitsWarper(temperature),
        *([TopKLogitsWarper(top_k)] if top_k else []),
        *([TopPLogitsWarper(top_p)] if top_p < 1 else []),
    ):
        logits = warper(None, logits)
    return logits.softmax(-1)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (5, 1.0), (0, 0.8), (7, 0.6), (1, 1.0), (99, 0.01)])
def test_probabilities_are_those_of_transformers(temperature, top_k, top_p):
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    settings = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    expected = warped(logits, temperature, top_k, top_p)
    torch.testing.assert_close(probabilities(logits, settings), expected)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=6), st.floats(0, 1, exclude_max=True))
def test_draw_inverts_the_cumulated_odds(odds, uniform):
    if sum(odds) < 1e-6:
        odds[0] = 1.0
    token = int(draw(torch.tensor([odds], dtype=torch.float64), torch.tensor([uniform], dtype=torch.float64)))
    assert odds[token] > 0
    below, total = sum(odds[:token]), sum(odds)
    assert below - 1e-9 <= uniform * total <= below + odds[token] + 1e-9


def test_the_largest_uniform_draws_no_impossible_token():
    uniform = torch.tensor([1 - 2**-53], dtype=torch.float64)
    assert int(draw(torch.tensor([[0.3, 0.7, 0.0, 0.0]]), uniform)) == 1


def test_every_part_of_the_unit_interval_draws_its_token():
    uniforms = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    tokens = draw(torch.tensor([[0.2, 0.0, 0.5, 0.3]]).expand(1000, 4), uniforms)
    assert tokens.bincount().tolist() == [200, 0, 500, 300]


def test_luck_belongs_to_the_position_however_it_is_asked_for():
    whole, late = PositionLuck(3).at(torch.arange(3000)), PositionLuck(3).at(torch.tensor([2500, 7]))
    assert late.tolist() == whole[[2500, 7]].tolist()
    assert not torch.equal(whole, PositionLuck(4).at(torch.arange(3000)))
    assert 0 <= whole.min() < whole.max() < 1


def test_no_two_seeds_and_no_drafts_share_their_luck():
    """A first token and a draft that shared a random number would not be independent."""
    seeds = [seed for s in range(4) for seed in (s, Sampling(seed=s).draft_seed)]
    assert len(set(seeds)) == 8
    streams = torch.stack([PositionLuck(seed).at(torch.arange(500)) for seed in seeds])
    assert len(streams.unique()) == streams.numel()


def test_chunks_change_no_token(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    hidden, head = torch.randn(9, 5, generator=generator), torch.randn(11, 5, generator=generator)
    settings, places = Sampling(seed=2), torch.arange(4, 13)
    whole = TokenChoice(settings).tokens(hidden, head, places)
    monkeypatch.setattr(module, "LOGITS_AT_ONCE", 22)  # two rows at a time
    assert torch.equal(TokenChoice(settings).tokens(hidden, head, places), whole)


@pytest.mark.parametrize("method", ["coupling", "rejection"])
def test_below_the_coldest_temperature_the_likeliest_is_taken(target, method):
    text = tuple(greedy_text(target, PROMPT, length=12))
    cold = Sampling(temperature=9e-6, method=method)
    assert decode_plain(target, PROMPT, max_new_tokens=12, sampling=cold).token_ids == text
    drafter = random_drafter(target)
    assert decode_chain(target, drafter, PROMPT, max_new_tokens=12, sampling=cold).token_ids == text


@pytest.mark.parametrize("block_size", [1, 3, 4])
def test_coupled_text_is_that_of_plain_sampling_with_the_same_seed(target, memorising, texts, block_size):
    rounds, differing = 0, set()
    for seed, prompt in enumerate(list(texts)[:2]):
        settings = Sampling(temperature=0.6, seed=seed)
        plain = decode_plain(target, prompt, max_new_tokens=24, sampling=settings)
        decoded = decode_chain(
            target, memorising, prompt, max_new_tokens=24, sampling=settings, block_size=block_size
        )
        assert decoded.token_ids == plain.token_ids
        other = decode_plain(target, prompt, max_new_tokens=24, sampling=Sampling(temperature=0.6, seed=99))
        differing.add(other.token_ids != plain.token_ids)
        rounds += len(decoded.rounds)
    assert differing == {True}  # the seed matters
    assert block_size == 1 or rounds < 23 * 2  # some drafts stood


def test_a_stop_token_ends_a_sampled_text(target, memorising):
    settings = Sampling(temperature=0.6, seed=1)
    whole = decode_plain(target, PROMPT, max_new_tokens=20, sampling=settings).token_ids
    stop = whole[9]
    expected = whole[: whole.index(stop) + 1]
    decoded = decode_chain(target, memorising, PROMPT, max_new_tokens=20, sampling=settings, stop_ids=[stop])
    assert decoded.token_ids == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "temperature divides the logits and is at least 0, got -1.0"),
        ({"temperature": float("nan")}, "temperature divides the logits"),
        ({"top_k": -1}, "top_k counts tokens, 0 for all, got -1"),
        ({"top_p": 0.0}, "top_p is a share above 0 and at most 1, got 0.0"),
        ({"top_p": 1.5}, "top_p is a share"),
    ],
)
def test_nonsense_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**settings)
