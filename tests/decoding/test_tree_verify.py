"""Oracles 6.28 to 6.32, 6.38, 6.39 for trees: the target's text whatever the tree, caches as if never
branched."""

import copy

import pytest
import torch
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

from dflash_lightning.decoding.acceptance import acceptance_length
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.decoding.sampling import Sampling
from dflash_lightning.decoding.tree import DraftTree
from dflash_lightning.decoding.tree_verify import Trees, decode_tree
from dflash_lightning.target.model import Target
from tests.decoding.drafters import BLOCK, OracleDrafter, greedy_text, prompts, random_drafter
from tests.toy import VOCAB, toy_llama, toy_model

PROMPT = prompts(1)[0]
BUDGETS = [0, 1, 3, 8, 32]
EXAMPLE = DraftTree(  # the tree of oracle 6.34, with tokens of the toy's vocabulary
    tokens=(10, 20, 11, 21, 20, 21), parents=(0, 1, 0, 1, 3, 3), depths=(1, 2, 1, 2, 2, 2), scores=(0.0,) * 6
)


@pytest.fixture(scope="module")
def text(target):
    return greedy_text(target, PROMPT, length=30)


def perfect(target, text):
    return OracleDrafter(target, [*PROMPT, *text])


def opened(target, drafter, budget=6):
    trees = Trees(target, drafter, PROMPT, block_size=BLOCK, budget=budget)
    trees.prefill()
    return trees


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("skill", [None, 0.7])
def test_text_is_the_targets_own_whatever_the_tree(target, budget, skill):
    prompt = prompts(12)[budget % 5]
    expected = greedy_text(target, prompt, length=18 + BLOCK)
    drafter = (
        random_drafter(target) if skill is None else OracleDrafter(target, [*prompt, *expected], skill=skill)
    )
    decoded = decode_tree(target, drafter, prompt, max_new_tokens=18, budget=budget)
    assert decoded.token_ids == tuple(expected[:18])
    assert sum(decoded.rounds) == 17


def test_a_memorising_drafter_branches_and_gains_by_it(target, memorising, texts):
    lengths = {}
    for budget in (3, 32):
        decoded = [
            decode_tree(target, memorising, prompt, max_new_tokens=24, budget=budget) for prompt in texts
        ]
        assert [one.token_ids for one in decoded] == [tuple(text) for text in texts.values()]
        lengths[budget] = acceptance_length([one.rounds for one in decoded]).pooled
    assert 1.5 < lengths[3] < lengths[32] < BLOCK


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_a_tied_llama_decodes_too(kernel):
    target = Target(toy_llama(seed=5))
    target.config._attn_implementation = kernel
    expected = greedy_text(target, PROMPT, length=20)
    drafter = OracleDrafter(target, [*PROMPT, *expected], skill=0.7)
    assert decode_tree(target, drafter, PROMPT, max_new_tokens=20, budget=8).token_ids == tuple(expected)


def test_a_window_shorter_than_the_text_is_respected():
    config = copy.deepcopy(toy_model().config)
    config.layer_types = ["full_attention", "sliding_attention"] * 4
    config.sliding_window, config.use_sliding_window = 6, True
    model = Qwen3ForCausalLM(Qwen3Config(**config.to_dict()))
    model.load_state_dict(toy_model().state_dict())
    target = Target(model)
    expected = greedy_text(target, PROMPT, length=20)
    assert expected != greedy_text(Target(toy_model()), PROMPT, length=20)  # the window matters
    drafter = OracleDrafter(target, [*PROMPT, *expected], skill=0.7)
    assert decode_tree(target, drafter, PROMPT, max_new_tokens=20, budget=8).token_ids == tuple(expected)


@pytest.mark.parametrize(
    ("budget", "rounds"),
    [(0, (1,) * 20), (2, (3,) * 6 + (2,)), (3, (4,) * 5), (8, (4,) * 5)],
)
def test_a_perfect_drafter_is_held_back_by_the_budget_alone(target, text, budget, rounds):
    """Oracle 6.29: budget 2 caps the length at 3, budget 3 fills the block."""
    decoded = decode_tree(target, perfect(target, text), PROMPT, max_new_tokens=21, budget=budget)
    assert decoded.rounds == rounds
    assert decoded.token_ids == tuple(text[:21])


@pytest.mark.parametrize("max_new_tokens", [0, 1, 2, 4, 5, 9])
def test_no_tree_reaches_beyond_the_limit(target, text, max_new_tokens):
    decoded = decode_tree(target, perfect(target, text), PROMPT, max_new_tokens=max_new_tokens, budget=32)
    assert decoded.token_ids == tuple(text[:max_new_tokens])
    assert len(decoded.rounds) == -((1 - max_new_tokens) // BLOCK) if max_new_tokens else True


@pytest.mark.parametrize("index", [0, 4, 6])
def test_a_stop_token_ends_the_text_wherever_it_falls(target, text, index):
    stop = text[index]
    seen = []
    decoded = decode_tree(
        target,
        perfect(target, text),
        PROMPT,
        max_new_tokens=20,
        budget=8,
        stop_ids=[stop],
        on_round=lambda tokens, drafted: seen.append(tokens),
    )
    assert decoded.token_ids == tuple(text[: text.index(stop) + 1])
    assert [token for tokens in seen for token in tokens] == list(decoded.token_ids)


def test_a_smaller_block_makes_a_shallower_tree(target, text):
    drafter = perfect(target, text)
    decoded = decode_tree(target, drafter, PROMPT, max_new_tokens=9, budget=8, block_size=3)
    assert decoded.rounds == (3, 3, 2)
    plain = decode_tree(target, drafter, PROMPT, max_new_tokens=9, budget=8, block_size=1)
    assert plain.rounds == (1,) * 8
    assert plain.token_ids == decoded.token_ids


def test_states_at_a_node_are_those_of_its_path(target):
    """Oracle 6.38: against a plain forward over prompt, anchor and the node's ancestors."""
    trees = opened(target, random_drafter(target))
    states = trees.verify_tree(EXAMPLE)
    logits = states.final[0] @ target.head.T
    for node, path in enumerate([[], [10], [10, 20], [11], [10, 21], [11, 20], [11, 21]]):
        ids = torch.tensor([[*PROMPT, int(trees.anchor), *path]])
        plain = target.tapped_states(ids, trees.layer_ids, final=True)
        torch.testing.assert_close(logits[node], plain.final[0, -1] @ target.head.T, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(states.taps[0, node], plain.taps[0, -1], rtol=1e-3, atol=1e-3)
    assert (logits[5] - logits[2]).abs().max() > 0.1  # the same token at the same place, another parent


def test_in_double_precision_nothing_is_left_of_the_difference():
    target = Target(toy_model().double())
    trees = opened(target, random_drafter(target).double())
    states = trees.verify_tree(EXAMPLE)
    plain = target.tapped_states(torch.tensor([[*PROMPT, int(trees.anchor), 11, 21]]), (), final=True)
    assert (states.final[0, 6] - plain.final[0, -1]).abs().max() < 1e-11


def test_the_compacted_cache_is_that_of_a_fresh_prefill(target):
    """Oracle 6.38: rows 0, 1 and 4 of the window are kept, in a cache that then holds only them."""
    trees = opened(target, random_drafter(target))
    ids = torch.tensor([[*PROMPT, int(trees.anchor), 10, 21]])
    trees.keep(trees.verify_tree(EXAMPLE), [0, 1, 4], following=7)
    fresh = DynamicCache()
    states = target.extend(ids, trees.layer_ids, cache=fresh)
    assert trees.cache.get_seq_length() == trees.start == len(PROMPT) + 3
    assert int(trees.anchor) == 7
    for kept, wanted in zip(trees.cache.layers, fresh.layers, strict=True):
        torch.testing.assert_close(kept.keys, wanted.keys, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(kept.values, wanted.values, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(trees.taps, states.taps, rtol=1e-3, atol=1e-3)


def test_caches_hold_what_was_committed_and_nothing_rejected(target, memorising, texts):
    """Oracle 6.31, round by round, against a fresh prefill of the committed text."""
    prompt, text = next(iter(texts.items()))
    trees = Trees(target, memorising, prompt, block_size=BLOCK, budget=8)
    committed, branched = [trees.prefill()], 0
    while len(committed) < 20:
        tree = trees.draft(max_depth=BLOCK - 1)
        branched += len(set(tree.depths)) < len(tree)
        assert trees.drafter_cache.length == trees.start
        new = trees.commit(tree)
        committed += new
        assert trees.cache.get_seq_length() == trees.start == len(prompt) + len(committed) - 1
        fresh = target.tapped_states(torch.tensor([[*prompt, *committed]]), trees.layer_ids).taps
        expected = fresh[:, trees.start - len(new) : trees.start]
        torch.testing.assert_close(trees.taps, expected, rtol=1e-3, atol=1e-3)
    assert committed == text[: len(committed)]
    assert branched > 0


@pytest.mark.parametrize("budget", [2, 12])
def test_sampled_text_is_that_of_plain_sampling_with_the_same_seed(target, memorising, texts, budget):
    for seed, prompt in enumerate(list(texts)[:2]):
        sampling = Sampling(temperature=0.7, top_k=20, top_p=0.95, seed=seed)
        plain = decode_plain(target, prompt, max_new_tokens=24, sampling=sampling)
        decoded = decode_tree(target, memorising, prompt, max_new_tokens=24, budget=budget, sampling=sampling)
        assert decoded.token_ids == plain.token_ids
        assert plain.token_ids != tuple(texts[prompt])  # luck had a say


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": -1}, "budget counts the nodes of a tree, 0 or more, got -1"),
        ({"sampling": Sampling(method="rejection")}, "rejection sampling does not apply"),
        ({"block_size": 5}, "block_size is 5, but this drafter was trained with 4"),
        ({"prompt_ids": []}, "the prompt is empty"),
    ],
)
def test_mistakes_are_refused(target, arguments, message):
    call = {"prompt_ids": PROMPT, "max_new_tokens": 3, "budget": 4} | arguments
    with pytest.raises(ValueError, match=message):
        decode_tree(target, random_drafter(target), **call)


def test_bfloat16_runs_together():
    target = Target(toy_model().bfloat16())
    decoded = decode_tree(target, random_drafter(target), PROMPT, max_new_tokens=6, budget=VOCAB + 9)
    assert len(decoded.token_ids) == 6
