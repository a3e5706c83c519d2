"""The file that travels with an export computes what the trainer's drafter computes."""

import dataclasses

import pytest
import torch
from transformers import DynamicCache, Qwen3Config

from dflash_lightning.drafter.cache import DrafterCache
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.config_json import to_json_dict
from dflash_lightning.export.remote_code import DFlashDraftModel
from tests.export.test_config_json import SLIDING
from tests.export.test_zlab import TOY

NARROW = dataclasses.replace(SLIDING, sliding_window=5)
MIXED = dataclasses.replace(
    NARROW, layer_types=("sliding_attention", "full_attention", "full_attention"), causal_in_block=False
)


def pair(config, **changes):
    """Trainer's drafter and the exported class, with the same weights."""
    ours = DFlashDrafter(dataclasses.replace(config, initializer_range=0.2)).eval()
    theirs = DFlashDraftModel(Qwen3Config(**to_json_dict(config) | changes)).eval()
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def inputs(context=11, slots=4):
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(2, slots, 64, generator=generator),
        torch.randn(2, context, 192, generator=generator),
        torch.arange(context + slots).expand(2, -1),
    )


@pytest.mark.parametrize(
    "config",
    [
        TOY,
        dataclasses.replace(TOY, causal_in_block=True),
        NARROW,
        dataclasses.replace(NARROW, causal_in_block=False),
        MIXED,
        dataclasses.replace(MIXED, causal_in_block=True),
        dataclasses.replace(MIXED, causal_in_block="sliding"),
    ],
)
@pytest.mark.parametrize("slots", [4, 2])
def test_hidden_states_are_bit_for_bit_the_trainers(config, slots):
    ours, theirs = pair(config)
    block, taps, positions = inputs(slots=slots)
    with torch.no_grad():
        expected = ours(block, taps, positions, None)
        assert torch.equal(theirs(block, taps, positions), expected)
        if not config.sees_all_context:  # the mask does something
            assert not torch.equal(pair(TOY)[1](block, taps, positions), expected)


@pytest.mark.parametrize("config", [TOY, NARROW, dataclasses.replace(MIXED, causal_in_block="sliding")])
def test_round_by_round_with_a_cache_as_at_once(config):
    ours, theirs = pair(config)
    block, taps, positions = inputs()
    cache, reference, start = DynamicCache(), DrafterCache(3), 0
    with torch.no_grad():
        for stop in (5, 8, 11):
            new = taps[:, start:stop], positions[:, start : stop + 4]
            found = theirs(block, *new, past_key_values=cache, use_cache=True)
            cache.crop(-4)
            assert cache.get_seq_length() == stop
            torch.testing.assert_close(found, ours(block, *new, None, reference), rtol=0, atol=1e-5)
            start = stop


def test_a_release_that_says_nothing_has_causal_sliding_layers_only():
    silent = {k: v for k, v in to_json_dict(NARROW)["dflash_config"].items() if k != "causal"}
    ours, theirs = pair(NARROW, is_causal=None, dflash_config=silent)
    arguments = inputs()
    with torch.no_grad():
        assert torch.equal(theirs(*arguments), ours(*arguments, None))


def test_the_second_key_for_causality_counts_where_the_first_is_absent():
    config = dataclasses.replace(NARROW, causal_in_block=False)
    ours, theirs = pair(config, is_causal=None)
    arguments = inputs()
    with torch.no_grad():
        assert torch.equal(theirs(*arguments), ours(*arguments, None))


def test_an_own_mask_takes_the_place_of_the_rule():
    _, theirs = pair(TOY)
    block, taps, positions = inputs()
    hide_oldest = torch.ones(1, 1, 4, 15, dtype=torch.bool)
    hide_oldest[..., 0] = False
    with torch.no_grad():
        masked = theirs(block, taps, positions, attention_mask=hide_oldest)
        torch.testing.assert_close(masked, theirs(block, taps[:, 1:], positions[:, 1:]), rtol=0, atol=1e-5)


def test_it_says_what_a_decoder_needs_to_know():
    _, theirs = pair(TOY)
    assert (theirs.block_size, theirs.mask_token_id, theirs.target_layer_ids) == (4, 52, [1, 3, 5])
