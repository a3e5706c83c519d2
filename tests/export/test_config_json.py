import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.export.config_json import from_json_dict, to_json_dict
from tests.export.test_zlab import QWEN3_8B, TOY

SLIDING = dataclasses.replace(
    TOY, layer_types=("sliding_attention",) * 3, sliding_window=32, causal_in_block=True
)


def read(raw):
    return from_json_dict(raw, source="config.json")


def test_every_key_of_the_released_config_is_there_with_its_value():
    """The table of spec/dflash.md 1B.1."""
    assert (
        to_json_dict(QWEN3_8B).items()
        >= {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
            "block_size": 16,
            "dflash_config": {
                "block_size": 16,
                "mask_token_id": 151669,
                "target_layer_ids": [1, 9, 17, 25, 33],
            },
            "num_hidden_layers": 5,
            "num_target_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "vocab_size": 151936,
            "layer_types": ["full_attention"] * 5,
            "rope_theta": 1e6,
            "rope_scaling": None,
            "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
            "max_position_embeddings": 40960,
            "max_window_layers": 5,
            "rms_norm_eps": 1e-6,
            "sliding_window": None,
            "use_sliding_window": False,
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "tie_word_embeddings": False,
            "initializer_range": 0.02,
            "bos_token_id": 151643,
            "eos_token_id": 151645,
            "use_cache": True,
            "dtype": "bfloat16",
            "is_causal": False,
        }.items()
    )


def test_nothing_of_a_hybrid_target_leaks_in():
    assert not {"partial_rotary_factor", "mrope_section", "text_config"} & to_json_dict(QWEN3_8B).keys()


@given(
    block_size=st.integers(2, 32),
    mask_token_id=st.integers(0, 52),
    theta=st.sampled_from([1e4, 5e5, 1e7]),
    taps=st.sampled_from([(1, 3, 5), (5, 1), (0,), (6, 2, 4, 1)]),
)
def test_what_is_written_is_read_back(block_size, mask_token_id, theta, taps):
    config = dataclasses.replace(
        TOY, block_size=block_size, mask_token_id=mask_token_id, rope_theta=theta, target_layer_ids=taps
    )
    assert read(to_json_dict(config)) == config


def test_sliding_layers_survive_with_their_rule():
    raw = to_json_dict(SLIDING)
    assert (raw["sliding_window"], raw["use_sliding_window"], raw["is_causal"]) == (32, True, True)
    assert read(raw) == SLIDING


def without(key):
    raw = to_json_dict(TOY)
    del raw[key]
    return raw


@pytest.mark.parametrize(
    "key", ["block_size", "rope_theta", "rope_parameters", "layer_types", "bos_token_id"]
)
def test_older_and_newer_releases_lack_some_keys(key):
    config = read(without(key))
    assert config == (dataclasses.replace(TOY, bos_token_id=None) if key == "bos_token_id" else TOY)


def test_a_release_of_sliding_layers_that_says_nothing_is_causal_within_a_block():
    raw = to_json_dict(SLIDING)
    del raw["is_causal"]
    assert read(raw).causal_in_block


def test_a_last_layer_tap_of_a_release_is_accepted():
    raw = to_json_dict(TOY)
    raw["dflash_config"]["target_layer_ids"] = [1, 3, 7]
    assert read(raw).target_layer_ids == (1, 3, 7)


def mixed():
    raw = to_json_dict(
        dataclasses.replace(SLIDING, layer_types=("sliding_attention",) * 2 + ("full_attention",))
    )
    del raw["is_causal"]
    return raw


TWICE = {"rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e4}}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (without("hidden_size"), "config.json has no hidden_size"),
        (without("dflash_config"), "config.json has no dflash_config"),
        (
            to_json_dict(TOY) | {"dflash_config": {"block_size": 4}},
            "dflash_config of config.json has no target_layer",
        ),
        (
            to_json_dict(TOY) | TWICE,
            "contradicts itself: rope_theta 1000000.0, rope_parameters.rope_theta 10000.0",
        ),
        (
            to_json_dict(TOY) | {"block_size": 8},
            "contradicts itself: block_size 8, dflash_config.block_size 4",
        ),
        (
            to_json_dict(TOY) | {"rope_theta": None, "rope_parameters": None},
            "has no rope_theta or rope_parameters",
        ),
        (
            to_json_dict(TOY) | {"architectures": ["Qwen3ForCausalLM"]},
            "describes .*Qwen3.*, not a DFlashDraftModel",
        ),
        (
            to_json_dict(TOY) | {"hidden_act": "gelu"},
            "hidden_act 'gelu'; only drafters with hidden_act 'silu'",
        ),
        (to_json_dict(TOY) | {"attention_bias": True}, "has attention_bias True"),
        (mixed(), "mixes sliding and full layers without is_causal"),
    ],
)
def test_configs_we_cannot_run_are_refused(raw, message):
    with pytest.raises(ValueError, match=message):
        read(raw)
