"""Oracles 6.28 to 6.32: greedy text whatever the drafter, exact counts of rounds, caches that never lie."""

import dataclasses
import functools
import math

import pytest
import torch

from dflash_lightning.decoding.acceptance import acceptance_length
from dflash_lightning.decoding.batched import decode_batch
from dflash_lightning.decoding.chain import Chain, decode_chain
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.decoding.tree_verify import decode_tree
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.target.model import Target
from tests.decoding.conftest import LENGTH
from tests.decoding.drafters import (
    BLOCK,
    OracleDrafter,
    greedy_text,
    prompts,
    random_drafter,
)
from tests.toy import MASK, VOCAB, toy_llama, toy_model

PROMPT = prompts(1)[0]


@pytest.fixture(scope="module")
def text(target):
    return greedy_text(target, PROMPT, length=30)


def perfect(target, text):
    return OracleDrafter(target, [*PROMPT, *text])


def decoded_texts(target, drafter, prompts, budget):
    """By chains, or by trees of `budget` nodes."""
    common = {"max_new_tokens": LENGTH}
    if budget is None:
        return [decode_chain(target, drafter, prompt, **common) for prompt in prompts]
    return [decode_tree(target, drafter, prompt, budget=budget, **common) for prompt in prompts]


@pytest.fixture(scope="module", params=[None, 3], ids=["chain", "tree"])
def budget(request):
    return request.param


@pytest.fixture(scope="module")
def right(target, memorising, texts, budget):
    return decoded_texts(target, memorising, texts, budget)


@functools.cache
def text_of(target, index, length):
    return greedy_text(target, prompts(12)[index], length=length)


def with_config(drafter, **changes):
    """The same weights under a wrong description, as a mistaken export would have."""
    twin = type(drafter)(dataclasses.replace(drafter.config, **changes)).eval()
    twin.load_state_dict(drafter.state_dict())
    return twin


class Misplaced(DFlashDrafter):
    """Sees its block where it does not stand: `move` changes the positions of the block's slots."""

    def __init__(self, drafter, move):
        super().__init__(drafter.config)
        self.load_state_dict(drafter.state_dict())
        self.eval()
        self.move = move

    def forward(self, block_embeddings, taps, positions, masks, cache=None):
        context, block = positions.split([positions.shape[1] - BLOCK, BLOCK], dim=1)
        positions = torch.cat((context, self.move(block)), dim=1)
        return super().forward(block_embeddings, taps, positions, masks, cache)


def test_the_toy_text_is_worth_guessing(text):
    assert len(set(text)) > 5  # else every drafter would be right


def test_plain_decoding_is_transformers_greedy_search(target, text):
    ids = torch.tensor([PROMPT])
    for expected in text:
        with torch.no_grad():
            following = target.model(ids, use_cache=False).logits[:, -1:].argmax(-1)
        assert int(following) == expected
        ids = torch.cat((ids, following), dim=1)


@pytest.mark.parametrize("index", range(0, 12, 3))
@pytest.mark.parametrize("skill", [None, 0.7, 1.0])
def test_text_is_the_targets_own_whatever_the_drafter(target, index, skill):
    prompt, length = prompts(12)[index], 10 + index
    expected = text_of(target, index, length + BLOCK)
    drafter = (
        random_drafter(target) if skill is None else OracleDrafter(target, [*prompt, *expected], skill=skill)
    )
    decoded = decode_chain(target, drafter, prompt, max_new_tokens=length)
    assert decoded.token_ids == tuple(expected[:length])
    assert sum(decoded.rounds) == length - 1


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda drafter: with_config(drafter, target_layer_ids=(2, 4, 6)), id="deeper taps"),
        pytest.param(lambda drafter: with_config(drafter, target_layer_ids=(5, 3, 1)), id="taps in disorder"),
        pytest.param(lambda drafter: with_config(drafter, mask_token_id=7), id="another mask"),
        pytest.param(lambda drafter: Misplaced(drafter, lambda at: at + 1), id="block a place too late"),
        pytest.param(lambda drafter: Misplaced(drafter, lambda at: at - 2), id="block two too early"),
        pytest.param(lambda drafter: Misplaced(drafter, lambda at: at.flip(1)), id="block backwards"),
        pytest.param(lambda drafter: Misplaced(drafter, lambda at: at * 0), id="block at the start"),
    ],
)
def test_wrong_taps_mask_or_positions_cost_rounds_but_never_text(
    target, memorising, texts, right, budget, spoil
):
    mistaken = decoded_texts(target, spoil(memorising), texts, budget)
    for one, other, text in zip(right, mistaken, texts.values(), strict=True):
        assert one.token_ids == other.token_ids == tuple(text)
    better, worse = (acceptance_length([one.rounds for one in many]).pooled for many in (right, mistaken))
    assert better > 2.0  # else the comparison below says nothing
    assert worse < better


def test_a_tied_llama_decodes_too():
    target = Target(toy_llama(seed=5))
    expected = greedy_text(target, PROMPT, length=20)
    decoded = decode_chain(
        target, OracleDrafter(target, [*PROMPT, *expected], skill=0.7), PROMPT, max_new_tokens=20
    )
    assert decoded.token_ids == tuple(expected)


@pytest.mark.parametrize(
    ("max_new_tokens", "rounds"),
    [(0, ()), (1, ()), (2, (1,)), (4, (3,)), (5, (4,)), (8, (4, 3)), (9, (4, 4)), (21, (4, 4, 4, 4, 4))],
)
def test_a_perfect_drafter_fills_every_round(target, text, max_new_tokens, rounds):
    decoded = decode_chain(target, perfect(target, text), PROMPT, max_new_tokens=max_new_tokens)
    assert decoded.token_ids == tuple(text[:max_new_tokens])
    assert decoded.rounds == rounds  # ceil((n - 1) / B) of them


def test_a_hopeless_drafter_makes_one_token_per_round(target, text):
    wrong = [(token + 1) % VOCAB for token in text]
    decoded = decode_chain(target, OracleDrafter(target, [*PROMPT, *wrong]), PROMPT, max_new_tokens=20)
    assert decoded.rounds == (1,) * 19
    assert decoded.tau == 1.0


def test_a_smaller_block_drafts_less(target, text):
    decoded = decode_chain(target, perfect(target, text), PROMPT, max_new_tokens=9, block_size=3)
    assert decoded.rounds == (3, 3, 2)
    plain = decode_chain(target, perfect(target, text), PROMPT, max_new_tokens=9, block_size=1)
    assert plain.rounds == (1,) * 8
    assert plain.token_ids == decoded.token_ids == tuple(text[:9])


@pytest.mark.parametrize("index", [0, 4, 6])
def test_a_stop_token_ends_the_text_wherever_it_falls_in_a_block(target, text, index):
    stop = text[index]
    first = text.index(stop)
    decoded = decode_chain(target, perfect(target, text), PROMPT, max_new_tokens=20, stop_ids=[stop])
    assert decoded.token_ids == tuple(text[: first + 1])
    assert sum(decoded.rounds) == first
    plain = decode_plain(target, PROMPT, max_new_tokens=20, stop_ids=[stop])
    assert decoded.token_ids == plain.token_ids


@pytest.mark.parametrize("tree", [None, 8])
@pytest.mark.parametrize("alone", [True, False])
def test_a_drafted_stop_counts_as_drafted(target, text, tree, alone):
    """A perfect drafter's rounds are three drafts and the target's own: tokens 4, 8, 12, ... of the text."""
    drafter, ends = perfect(target, text), {text.index(stop) for stop in text[:25]}
    assert {end % BLOCK for end in ends} == set(range(BLOCK))  # else some place in a block is not tried
    for end in ends:
        common = {"max_new_tokens": 30, "stop_ids": [text[end]]}
        if not alone:
            (decoded,) = decode_batch(target, drafter, [PROMPT], budget=tree, **common)
        elif tree is None:
            decoded = decode_chain(target, drafter, PROMPT, **common)
        else:
            decoded = decode_tree(target, drafter, PROMPT, budget=tree, **common)
        assert decoded.token_ids == tuple(text[: end + 1])
        assert decoded.drafted == end - end // BLOCK
        assert decoded.ended_by_draft == (end % BLOCK != 0)


def test_a_target_that_really_says_the_mask_token_is_believed(target, text):
    """Oracle 6.32: dropping every MASK from the output, as some loops do, would lose a token of the text."""
    mask = text[5]
    drafter = with_config(random_drafter(target), mask_token_id=mask)
    decoded = decode_chain(target, drafter, PROMPT, max_new_tokens=20)
    assert mask in decoded.token_ids
    assert decoded.token_ids == tuple(text[:20])


def test_caches_hold_what_was_committed_and_nothing_rejected(target, text):
    """Oracle 6.31, round by round, against a fresh prefill of the committed text."""
    drafter = OracleDrafter(target, [*PROMPT, *text], skill=0.7)
    chain = Chain(target, drafter, PROMPT, block_size=BLOCK)
    committed = [chain.prefill()]
    assert (chain.cache.get_seq_length(), chain.taps.shape[1]) == (len(PROMPT), len(PROMPT))
    counts = []
    while len(committed) < 20:
        drafted = chain.draft()
        assert chain.drafter_cache.length == chain.start
        new = chain.commit(drafted)
        counts.append(len(new))
        committed += new
        assert chain.cache.get_seq_length() == chain.start == len(PROMPT) + len(committed) - 1
        assert chain.drafter_cache.length == chain.start - len(new)
        fresh = target.tapped_states(torch.tensor([[*PROMPT, *committed]]), chain.layer_ids).taps
        torch.testing.assert_close(
            chain.taps, fresh[:, chain.start - len(new) : chain.start], rtol=1e-3, atol=1e-3
        )
        for layer in chain.cache.layers:
            assert layer.keys.shape[-2] == chain.start
    assert committed == text[: len(committed)]
    assert len(set(counts)) > 1  # some drafts were rejected, some were not


def test_rounds_arrive_as_they_are_committed(target, text):
    seen = []
    decoded = decode_chain(
        target, perfect(target, text), PROMPT, max_new_tokens=9, on_round=lambda *new: seen.append(new)
    )
    assert [(len(tokens), drafted) for tokens, drafted in seen] == [(1, 0), (4, 3), (4, 3)]
    assert [token for tokens, _ in seen for token in tokens] == list(decoded.token_ids)


def test_no_tokens_wanted_none_made(target):
    decoded = decode_chain(target, random_drafter(target), PROMPT, max_new_tokens=0)
    assert decoded.token_ids == ()
    assert math.isnan(decoded.tau)
    assert decode_plain(target, PROMPT, max_new_tokens=0).token_ids == ()


def test_bfloat16_drafter_and_target_run_together(text):
    target = Target(toy_model().bfloat16())
    decoded = decode_chain(target, random_drafter(target), PROMPT, max_new_tokens=6)
    halved = decode_chain(target, random_drafter(target).bfloat16(), PROMPT, max_new_tokens=6)
    assert len(decoded.token_ids) == len(halved.token_ids) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt_ids": []}, "the prompt is empty"),
        ({"block_size": 5}, "block_size is 5, but this drafter was trained with 4"),
        ({"block_size": 0}, "block_size is 0"),
    ],
)
def test_mistakes_are_refused(target, arguments, message):
    call = {"prompt_ids": PROMPT, "max_new_tokens": 3} | arguments
    with pytest.raises(ValueError, match=message):
        decode_chain(target, random_drafter(target), **call)


def test_recurrent_targets_are_refused():
    target = Target(toy_model())
    target.config.layer_types = ["linear_attention"] * target.depth
    with pytest.raises(ValueError, match="layers of kind linear_attention"):
        decode_chain(target, random_drafter(target), PROMPT, max_new_tokens=3)


def test_the_mask_of_the_fixture_is_free(text):
    assert MASK not in text
