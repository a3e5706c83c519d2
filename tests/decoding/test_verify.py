import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DynamicCache

from dflash_lightning.decoding import verify
from dflash_lightning.decoding.verify import accepted, crop_to, greedy_tokens


def accepted_by_hand(drafted, verified):
    return [*(one == two for one, two in zip(drafted, verified, strict=True)), False].index(False)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=8))
def test_accepted_is_the_agreeing_prefix(pairs):
    drafted, verified = [one for one, _ in pairs], [two for _, two in pairs]
    fast = accepted(torch.tensor(drafted, dtype=torch.long), torch.tensor(verified, dtype=torch.long))
    assert fast == accepted_by_hand(drafted, verified)


def cache_of(length):
    cache = DynamicCache()
    states = torch.arange(float(length)).view(1, 1, length, 1)
    cache.update(states, -states, 0)
    return cache


@pytest.mark.parametrize("want", [0, 1, 4, 5, 9])
def test_crop_keeps_the_first_positions_and_never_more_than_there_are(want):
    cache = cache_of(5)
    crop_to(cache, want)
    assert cache.layers[0].keys.flatten().tolist() == list(range(min(want, 5)))


def test_greedy_tokens_by_chunks_are_the_argmax(monkeypatch):
    hidden, head = torch.randn(7, 5), torch.randn(11, 5)
    monkeypatch.setattr(verify, "LOGITS_AT_ONCE", 22)  # two rows at a time
    assert torch.equal(greedy_tokens(hidden, head), (hidden @ head.T).argmax(-1))
