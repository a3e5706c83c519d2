"""Which layers are causal within a block: none, all, or those that slide; masks, forward pass and cache."""

import itertools

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask

from dflash_lightning.drafter import DrafterCache
from dflash_lightning.drafter.mask import build_masks
from tests.drafter.toy import (
    BLOCK,
    drafter_config,
    lone_block_rows,
    noise,
    one_block,
    reference,
    run_blocks,
    toy_drafter,
)
from tests.toy import HIDDEN

FULL, SLIDING = "full_attention", "sliding_attention"
KINDS = list(itertools.product((FULL, SLIDING), repeat=3))
VALUES = [False, True, "sliding"]
MIXED = [(SLIDING, SLIDING, FULL), (FULL, SLIDING, FULL)]


def settings(kinds, causal, window=4):
    return {"layer_types": kinds, "sliding_window": window, "causal_in_block": causal}


@pytest.mark.parametrize("kinds", KINDS)
def test_where_all_layers_are_of_one_kind_the_third_value_is_one_of_the_other_two(kinds):
    configs = {causal: drafter_config(**settings(kinds, causal)) for causal in VALUES}
    for causal in (False, True):
        assert configs[causal].causal_in_block is causal
        assert [configs[causal].is_causal(kind) for kind in kinds] == [causal] * 3
    assert [configs["sliding"].is_causal(kind) for kind in kinds] == [kind == SLIDING for kind in kinds]
    same = {(FULL,) * 3: configs[False], (SLIDING,) * 3: configs[True]}.get(kinds)
    if same is None:
        assert configs["sliding"].causal_in_block == "sliding"
    else:
        assert configs["sliding"] == same
    assert configs["sliding"].sees_all_context == (kinds == (FULL,) * 3)


@pytest.mark.parametrize("causal", VALUES)
@pytest.mark.parametrize("kinds", KINDS)
def test_masks_are_the_rule_spelled_out_position_by_position(kinds, causal):
    anchors, context = [0, 2, 5, 5, 9], 10
    anchor = torch.tensor([anchors, anchors[::-1]])
    keep = torch.tensor([[True, True, True, False, True]] * 2)
    config = drafter_config(**settings(kinds, causal))
    queries, keys = len(anchors) * BLOCK, context + len(anchors) * BLOCK
    flex = build_masks(anchor, keep, context, BLOCK, config, attention="flex")
    dense = build_masks(anchor, keep, context, BLOCK, config)
    for kind in (FULL, SLIDING):
        if kind not in kinds:
            assert dense.of(kind) is flex.of(kind) is None
            continue
        expected = torch.zeros(2, 1, queries, keys, dtype=torch.bool)
        for row, j in itertools.product(range(2), range(len(anchors))):
            place = int(anchor[row, j])
            seen = torch.tensor(lone_block_rows(config, kind, place, BLOCK))
            mine, own = slice(j * BLOCK, (j + 1) * BLOCK), context + j * BLOCK
            if keep[row, j]:
                expected[row, 0, mine, :place] = seen[:, :place]
            expected[row, 0, mine, own : own + BLOCK] = seen[:, place:]
        assert torch.equal(dense.of(kind), expected)
        rule = flex.of(kind).mask_mod
        assert torch.equal(create_mask(rule, 2, 1, queries, keys, device="cpu"), expected)


@pytest.mark.parametrize("causal", VALUES)
@pytest.mark.parametrize("kinds", [*MIXED, (SLIDING,) * 3, (FULL,) * 3])
def test_training_decoding_and_the_spec_spelled_out_are_one(kinds, causal):
    drafter, taps = toy_drafter(**settings(kinds, causal)), noise(12, 3 * HIDDEN, seed=2)
    anchors = [0, 2, 5, 5, 11]
    slots = noise(len(anchors), BLOCK, HIDDEN, seed=1)
    with torch.no_grad():
        trained = run_blocks(drafter, slots, taps, anchors)
        for j, anchor in enumerate(anchors):
            alone = one_block(drafter, slots[j], taps, anchor)
            torch.testing.assert_close(trained[j], alone, atol=1e-12, rtol=0)
            expected = reference(drafter, slots[j], taps, anchor)
            torch.testing.assert_close(alone, expected, atol=1e-6, rtol=0)  # angles are fp32 in both


@pytest.mark.parametrize("kinds", MIXED)
def test_round_by_round_with_a_cache_as_in_training(kinds):
    drafter, taps = toy_drafter(**settings(kinds, "sliding")), noise(9, 3 * HIDDEN, seed=2)
    cache, start = DrafterCache(3), 0
    for anchor in (5, 8, 9):
        block, where = noise(BLOCK, HIDDEN, seed=anchor), torch.arange(start, anchor + BLOCK)
        with torch.no_grad():
            out = drafter(block[None], taps[None, start:anchor], where[None], None, cache)[0]
            trained = run_blocks(drafter, block[None], taps, [anchor])[0]
        torch.testing.assert_close(out, trained, atol=1e-12, rtol=0)
        start = anchor


@pytest.mark.parametrize("kinds", MIXED)
def test_each_value_is_a_drafter_of_its_own(kinds):
    block, taps = noise(BLOCK, HIDDEN, seed=1), noise(9, 3 * HIDDEN, seed=2)
    with torch.no_grad():
        outs = [one_block(toy_drafter(**settings(kinds, causal)), block, taps, 9) for causal in VALUES]
    for one, other in itertools.combinations(outs, 2):
        assert (one - other).abs().max() > 0.01


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")  # slow, exact, fine here
@pytest.mark.parametrize("causal", VALUES)
@pytest.mark.parametrize("kinds", MIXED)
def test_flex_attention_gives_the_same_drafter(kinds, causal):
    drafter = toy_drafter(torch.float32, **settings(kinds, causal))
    slots, taps = noise(2, BLOCK, HIDDEN, seed=1).float(), noise(12, 3 * HIDDEN, seed=2).float()
    with torch.no_grad():  # flex has no backward on CPU
        dense = run_blocks(drafter, slots, taps, [3, 9])
        drafter.attention = "flex"
        flex = run_blocks(drafter, slots, taps, [3, 9])
    torch.testing.assert_close(flex, dense, atol=1e-5, rtol=0)
