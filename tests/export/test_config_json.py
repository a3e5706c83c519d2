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
                "causal": False,
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
    raw = silent_about_causality(SLIDING)
    assert read(raw).causal_in_block
    assert not read(silent_about_causality(TOY)).causal_in_block


def silent_about_causality(config):
    raw = to_json_dict(config)
    del raw["is_causal"], raw["dflash_config"]["causal"]
    return raw


@pytest.mark.parametrize("config", [TOY, SLIDING, dataclasses.replace(SLIDING, causal_in_block=False)])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("key", ["is_causal", "dflash_config.causal"])
def test_either_key_for_causality_counts_alone(config, causal, key):
    """Some versions of vLLM read only the second one, and ModelOpt writes only that."""
    raw = silent_about_causality(config)
    (raw if key == "is_causal" else raw["dflash_config"])[key.split(".")[-1]] = causal
    assert read(raw) == dataclasses.replace(config, causal_in_block=causal)


def test_both_keys_for_causality_are_written_alike():
    for config in (TOY, SLIDING):
        raw = to_json_dict(config)
        assert raw["is_causal"] is raw["dflash_config"]["causal"] is config.causal_in_block


def dflash(**values):
    raw = to_json_dict(TOY)
    raw["dflash_config"] |= values
    return raw


ALL_SLIDE = dataclasses.replace(SLIDING, causal_in_block=False)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (dflash(use_swa=True, swa_window_size=32), ALL_SLIDE),  # as ModelOpt exports
        (dflash(use_swa=True) | {"sliding_window": 32}, ALL_SLIDE),
        (dflash(use_swa=False, swa_window_size=32), TOY),
        (dflash(swa_window_size=32) | {"layer_types": ["sliding_attention"] * 3}, ALL_SLIDE),
        (
            to_json_dict(ALL_SLIDE) | {"layer_types": None, "max_window_layers": 0},
            ALL_SLIDE,  # as transformers fills layer_types in
        ),
        (to_json_dict(TOY) | {"layer_types": None, "sliding_window": 32}, TOY),  # use_sliding_window is false
    ],
)
def test_every_way_to_say_sliding_is_understood(raw, expected):
    assert read(raw) == expected


NEUTRAL = {"input_embedding_scale": 1.0, "output_multiplier": 1, "final_logit_softcapping": None}


@pytest.mark.parametrize("place", ["", "dflash_config"])
def test_neutral_values_of_what_we_do_not_compute_are_read_past(place):
    assert read(dflash(**NEUTRAL) if place else to_json_dict(TOY) | NEUTRAL) == TOY


@pytest.mark.parametrize(
    "change",
    [
        {"rope_scaling": {"rope_type": "default"}},
        {"rope_scaling": {"type": "default"}},
        {"partial_rotary_factor": 1.0},
        {"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 1, "mrope_section": [4, 2, 2]}},
    ],
)
def test_a_plain_rope_in_other_words_is_a_plain_rope(change):
    assert read(to_json_dict(TOY) | change) == TOY


def test_a_last_layer_tap_of_a_release_is_accepted():
    raw = to_json_dict(TOY)
    raw["dflash_config"]["target_layer_ids"] = [1, 3, 7]
    assert read(raw).target_layer_ids == (1, 3, 7)


def rope(**values):
    return to_json_dict(TOY) | {"rope_parameters": {"rope_theta": 1e6, **values}}


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
        (rope(rope_type="yarn", factor=4.0), "rope_parameters .*'yarn'.*only drafters with the plain rope"),
        (rope(type="linear", factor=2.0), "rope_parameters .*'linear'"),
        (
            to_json_dict(TOY) | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "rope_scaling .*'llama3'.*plain rope",
        ),
        (rope(full_attention={"rope_theta": 1e4}), "rope_parameters .*'full_attention'.*for all layers"),
        (rope(partial_rotary_factor=0.25), "has rope_parameters.partial_rotary_factor 0.25; only .* 1 are"),
        (to_json_dict(TOY) | {"partial_rotary_factor": 0.5}, "has partial_rotary_factor 0.5; only drafters"),
        (
            dflash(input_embedding_scale=8.0),
            "has dflash_config.input_embedding_scale 8.0; only drafters with",
        ),
        (dflash(output_multiplier=0.5), "has dflash_config.output_multiplier 0.5; only drafters with"),
        (dflash(final_logit_softcapping=30.0), "has dflash_config.final_logit_softcapping 30.0; only"),
        (to_json_dict(TOY) | {"final_logit_softcapping": 30.0}, "has final_logit_softcapping 30.0; only"),
        (dflash(causal=True), "contradicts itself: is_causal False, dflash_config.causal True; servers"),
        (dflash(use_swa=True), "config.json: sliding_attention layers need a positive sliding_window"),
        (
            dflash(use_swa=True, swa_window_size=32) | {"sliding_window": 64},
            "contradicts itself: dflash_config.swa_window_size 32, sliding_window 64",
        ),
        (to_json_dict(TOY) | {"dflash_config": [1]}, r"has dflash_config \[1\], where an object"),
        (to_json_dict(TOY) | {"rope_parameters": "x"}, "has rope_parameters 'x', where an object"),
    ],
)
def test_configs_we_cannot_run_are_refused(raw, message):
    with pytest.raises(ValueError, match=message):
        read(raw)
