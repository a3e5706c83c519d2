"""Several prompts at once give what each gives alone: tokens and rounds, whatever leaves the batch when."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from dflash_lightning.decoding.batched import RaggedRounds, chain_tree, decode_batch, ragged_visible
from dflash_lightning.decoding.chain import decode_chain
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.decoding.sampling import Sampling
from dflash_lightning.decoding.stage_times import StageTimes
from dflash_lightning.decoding.tree_verify import decode_tree
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.target.model import Target
from tests.decoding.drafters import BLOCK, greedy_text, prompts, random_drafter, toy_drafter_config
from tests.decoding.test_tree_verify import EXAMPLE
from tests.slow import slow
from tests.toy import VOCAB, toy_llama

MANY = [prompt[: 1 + 3 * i % 8] for i, prompt in enumerate(prompts(7))]
"""Prompts of one to eight tokens."""


class RowsOracle(DFlashDrafter):
    """Knows the texts of many prompts; finds a row's by its anchor and place. Tells the truth at the share
    `skill` of the places, the same ones whenever it is asked."""

    def __init__(self, target, texts, *, skill):
        super().__init__(toy_drafter_config(target))
        self.table, self.inverse = target.parts.embed.weight, torch.linalg.pinv(target.head)
        honest = torch.rand(64, generator=torch.Generator().manual_seed(3)) < skill
        self.answers = {}
        for prompt, text in texts.items():
            ids = [*prompt, *text]
            told = [token if honest[place] else (token + 1) % VOCAB for place, token in enumerate(ids)]
            for place in range(len(prompt), len(ids)):
                self.answers[place, ids[place]] = (told + [0] * BLOCK)[place : place + BLOCK]

    def forward(self, block_embeddings, taps, positions, masks, cache=None):
        super().forward(block_embeddings, taps, positions, masks, cache)  # keeps the cache as a drafter would
        size = block_embeddings.shape[1]
        anchors = [int((self.table == row[0]).all(-1).nonzero()[0]) for row in block_embeddings]
        places = positions[:, -size].tolist()
        told = [self.answers.get(key, [0] * BLOCK)[:size] for key in zip(places, anchors, strict=True)]
        return 10.0 * F.one_hot(torch.tensor(told), VOCAB).float() @ self.inverse.T


@pytest.fixture(scope="module")
def own_texts(target):
    return {tuple(prompt): greedy_text(target, prompt, length=28) for prompt in MANY}


@pytest.fixture(scope="module")
def drafters(target, own_texts, memorising):
    return {
        "random": random_drafter(target),
        "memorising": memorising,
        "noisy": RowsOracle(target, own_texts, skill=0.7),
        "perfect": RowsOracle(target, own_texts, skill=1.0),
    }


def alone(target, drafter, prompt, *, budget=None, **options):
    if drafter is None:
        return decode_plain(target, prompt, **options)
    if budget is None:
        return decode_chain(target, drafter, prompt, **options)
    return decode_tree(target, drafter, prompt, budget=budget, **options)


@pytest.mark.parametrize(
    ("name", "budget"),
    [
        ("noisy", None),
        ("memorising", 8),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("random", None), ("memorising", None))),
        pytest.param("noisy", 0, marks=pytest.mark.slow),
    ],
)
def test_each_row_is_as_if_alone(target, drafters, name, budget):
    batch = decode_batch(target, drafters[name], MANY, max_new_tokens=20, budget=budget)
    for prompt, decoded in zip(MANY, batch, strict=True):
        assert decoded == alone(target, drafters[name], prompt, budget=budget, max_new_tokens=20)
    if name == "noisy" and budget is None:
        assert len({decoded.rounds for decoded in batch}) > 2  # acceptance was ragged


def test_without_a_drafter_a_batch_decodes_plainly(target, own_texts):
    batch = decode_batch(target, None, MANY, max_new_tokens=12)
    assert [decoded.token_ids for decoded in batch] == [tuple(own_texts[tuple(p)][:12]) for p in MANY]
    assert all(decoded.rounds == (1,) * 11 for decoded in batch)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_rows_any_limit_any_stop(target, drafters, data):
    rows = data.draw(st.lists(st.integers(0, len(MANY) - 1), min_size=1, max_size=5))
    options = {
        "max_new_tokens": data.draw(st.integers(0, 14)),
        "stop_ids": data.draw(st.lists(st.integers(0, VOCAB - 1), max_size=4)),
        "block_size": data.draw(st.integers(1, BLOCK)),
    }
    budget = data.draw(st.sampled_from([None, 0, 2, 6]))
    drafter = drafters[data.draw(st.sampled_from(["noisy", "perfect", "random"]))]
    chosen = [MANY[row] for row in rows]
    batch = decode_batch(target, drafter, chosen, budget=budget, **options)
    assert batch == [alone(target, drafter, prompt, budget=budget, **options) for prompt in chosen]


@pytest.mark.parametrize("budget", [None, 8])
def test_sampled_rows_have_seeds_of_their_own(target, drafters, budget):
    sampling = Sampling(temperature=0.8, top_k=20, seed=5)
    chosen = [MANY[2], MANY[2], MANY[6], MANY[2]]
    batch = decode_batch(
        target,
        drafters["memorising"],
        chosen,
        max_new_tokens=16,
        budget=budget,
        sampling=sampling,
        stop_ids=[7],
    )
    for row, (prompt, decoded) in enumerate(zip(chosen, batch, strict=True)):
        mine = dataclasses.replace(sampling, seed=5 + row)
        options = {"max_new_tokens": 16, "sampling": mine, "stop_ids": [7]}
        assert decoded == alone(target, drafters["memorising"], prompt, budget=budget, **options)
    assert batch[0].token_ids != batch[1].token_ids
    again = decode_batch(target, None, chosen[:2], max_new_tokens=16, sampling=sampling, seeds=[6, 5])
    assert [one.token_ids[:4] for one in again] == [batch[1].token_ids[:4], batch[0].token_ids[:4]]


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_a_tied_llama_decodes_too(kernel):
    target = Target(toy_llama(seed=5))
    target.config._attn_implementation = kernel
    texts = {tuple(p): greedy_text(target, p, length=20) for p in MANY[:4]}
    batch = decode_batch(target, RowsOracle(target, texts, skill=0.7), MANY[:4], max_new_tokens=16)
    assert [decoded.token_ids for decoded in batch] == [tuple(text[:16]) for text in texts.values()]


@pytest.mark.parametrize("causal", ["sliding", *slow(False, True)])
def test_a_drafter_with_a_window_sees_the_same_as_alone(target, causal):
    kinds = ("sliding_attention", "full_attention", "sliding_attention")
    drafter = random_drafter(target, layer_types=kinds, sliding_window=5, causal_in_block=causal)
    batch = decode_batch(target, drafter, MANY[:5], max_new_tokens=14, budget=6)
    assert batch == [decode_tree(target, drafter, p, max_new_tokens=14, budget=6) for p in MANY[:5]]


def test_caches_hold_what_was_committed_and_nothing_rejected(target, drafters):
    """Round by round and row by row, against a fresh prefill of the committed text."""
    drafter, rows = drafters["noisy"], MANY[:4]
    rounds = RaggedRounds(target, drafter, rows, block_size=BLOCK)
    committed = [[*prompt, token] for prompt, token in zip(rows, rounds.prefill(), strict=True)]
    for turn in range(4):
        new = rounds.commit(rounds.draft([9] * len(committed)))
        committed = [[*old, *tokens] for old, tokens in zip(committed, new, strict=True)]
        assert rounds.starts == [len(ids) - 1 for ids in committed]
        for row, ids in enumerate(committed):
            alone = RaggedRounds(target, drafter, [ids[:-1]], block_size=BLOCK)
            alone.prefill()
            start, fresh = rounds.starts[row], rounds.pending[row]
            torch.testing.assert_close(
                rounds.taps[row, :fresh], alone.taps[0, start - fresh :], rtol=1e-3, atol=1e-3
            )
            for ours, theirs in zip(rounds.cache.layers, alone.cache.layers, strict=True):
                torch.testing.assert_close(ours.keys[row, :, :start], theirs.keys[0], rtol=1e-3, atol=1e-3)
        if turn == 1:
            rounds.select([0, 2, 3])
            committed = [committed[row] for row in (0, 2, 3)]
        assert rounds.cache.get_seq_length() == max(rounds.starts)


def test_a_drafter_that_left_nothing_behind_cannot_poison_a_row(target, drafters):
    """Padding of the drafter's cache is zero, for a hidden NaN would still be a NaN in the sum."""
    rounds = RaggedRounds(target, drafters["random"], MANY[:3], block_size=BLOCK)
    rounds.prefill()
    rounds.draft([3] * 3)
    for layer in rounds.drafter_cache.layers:
        assert torch.isfinite(layer._keys).all()


def test_rows_see_their_own_past_and_their_own_ancestors():
    visible = ragged_visible([EXAMPLE, chain_tree([4, 5])], [2, 3], 7)
    assert visible.shape == (2, 7, 10)
    assert visible[0, :, :3].tolist() == [[True, True, False]] * 7
    assert visible[0, :, 3:].equal(EXAMPLE.visible(0))
    chain = visible[1, :, 3:].int().tolist()
    assert chain[:3] == [[1, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0]]
    assert chain[3:] == [[0] * 7] * 4  # padding: it sees the past alone
    assert visible[1, :, :3].all()


def test_stages_are_timed(target, drafters):
    times = StageTimes()
    batch = decode_batch(target, drafters["perfect"], MANY[:2], max_new_tokens=9, times=times)
    passes = max(len(decoded.rounds) for decoded in batch)
    assert times.calls == {"prefill": 1, "draft": passes, "verify": passes}
    assert sum(times.shares().values()) == pytest.approx(1.0)
    assert StageTimes().shares() == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompts": [[5], []]}, "the prompt is empty"),
        ({"budget": -1}, "budget counts the nodes of a tree, 0 or more, got -1"),
        ({"sampling": Sampling(method="rejection")}, "rejection sampling decodes one prompt at a time"),
        ({"block_size": 5}, "block_size is 5, but this drafter was trained with 4"),
    ],
)
def test_mistakes_are_refused(target, arguments, message):
    call = {"prompts": MANY[:2], "max_new_tokens": 3} | arguments
    with pytest.raises(ValueError, match=message):
        decode_batch(target, random_drafter(target), **call)


def test_no_prompts_no_answers(target):
    assert decode_batch(target, random_drafter(target), [], max_new_tokens=3) == []
    assert decode_batch(target, random_drafter(target), MANY[:1], max_new_tokens=0)[0].token_ids == ()
