"""Spec 1B.4: z-lab's format and speculators', one into the other and back without loss."""

import dataclasses
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.formats import load_folder
from dflash_lightning.export.speculators import (
    OF_THE_TARGET,
    export_speculators,
    from_speculators_json,
    load_speculators,
    to_speculators_json,
)
from dflash_lightning.export.target import TargetFacts
from dflash_lightning.export.zlab import export_zlab
from tests.export.test_config_json import SLIDING
from tests.export.test_zlab import QWEN3_8B, TOY, rewrite_weights

TARGET = TargetFacts("some/model", ("Qwen3ForCausalLM",))
MIXED = dataclasses.replace(
    SLIDING, layer_types=("sliding_attention",) * 2 + ("full_attention",), causal_in_block=False
)


def read(raw, **options):
    return from_speculators_json(raw, source="config.json", **options)


def test_every_key_of_the_format():
    raw = to_speculators_json(QWEN3_8B, TARGET)
    assert (
        raw.items()
        >= {
            "architectures": ["DFlashSpeculator"],
            "speculators_model_type": "dflash",
            "aux_hidden_state_layer_ids": [2, 10, 18, 26, 34],  # boundaries: layer id + 1
            "block_size": 16,
            "draft_vocab_size": 151936,
            "mask_token_id": 151669,
            "sample_from_anchor": False,
            "sliding_window_non_causal": False,
            "target_hidden_size": None,
            "speculators_config": {
                "algorithm": "dflash",
                "default_proposal_method": "greedy",
                "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 15}],
                "verifier": {"name_or_path": "some/model", "architectures": ["Qwen3ForCausalLM"]},
            },
        }.items()
    )
    decoder = raw["transformer_layer_config"]
    assert decoder["model_type"] == "qwen3"
    assert decoder["rope_theta"] == decoder["rope_parameters"]["rope_theta"] == 1e6
    assert not {"dflash_config", "auto_map", "block_size"} & decoder.keys()


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
    assert read(to_speculators_json(config, TARGET)) == config


@pytest.mark.parametrize("config", [TOY, SLIDING, dataclasses.replace(SLIDING, causal_in_block=False), MIXED])
def test_there_and_back_again_no_byte_differs(tmp_path, config):
    state = DFlashDrafter(config).state_dict()
    first = export_zlab(config, state, tmp_path / "a")
    found = load_folder(first)
    there = export_speculators(found.config, found.state, tmp_path / "b", target=TARGET, dtype=None)
    between = load_folder(there)
    assert (between.format, between.target) == ("speculators", "some/model")
    back = export_zlab(between.config, between.state, tmp_path / "c", dtype=None)
    for name in ("config.json", "model.safetensors"):
        assert (back / name).read_bytes() == (first / name).read_bytes()
    assert (there / "model.safetensors").read_bytes() == (first / "model.safetensors").read_bytes()


def test_copies_of_the_targets_tensors_are_not_read(tmp_path):
    folder = export_speculators(TOY, DFlashDrafter(TOY).state_dict(), tmp_path, target=TARGET)
    expected = load_file(folder / "model.safetensors")
    rewrite_weights(folder, lambda state: state.update({name: torch.ones(53, 64) for name in OF_THE_TARGET}))
    assert load_speculators(folder)[1].keys() == expected.keys()


def test_a_folder_of_the_package_says_no_depth_and_takes_the_targets():
    raw = to_speculators_json(TOY, TARGET)
    del raw["num_target_layers"]
    assert read(raw, depth=8) == TOY
    with pytest.raises(
        ValueError, match="does not say how many layers .*: give --target a folder here, or one in"
    ):
        read(raw)


def changed(**values):
    raw = to_speculators_json(TOY, TARGET) | values
    return {key: value for key, value in raw.items() if value != "absent"}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (changed(speculators_model_type="eagle3"), "a speculator of type 'eagle3'; only 'dflash'"),
        (changed(draft_vocab_size=32), r"pruned vocabulary \(draft_vocab_size 32, the target's 53\)"),
        (changed(sample_from_anchor=True), "sample_from_anchor, which is DSpark's rule"),
        (changed(target_hidden_size=128), "target_hidden_size 128, but the drafter is 64 wide"),
        (changed(aux_hidden_state_layer_ids=None), "aux_hidden_state_layer_ids None; a list of boundaries"),
        (changed(aux_hidden_state_layer_ids=[0, 3]), r"aux_hidden_state_layer_ids \[0, 3\]; .* embedding"),
        (changed(mask_token_id=None), "has no mask_token_id"),
        (changed(mask_token_id=53), "config.json: mask_token_id 53 is not a row of the target's embedding"),
        (
            changed(aux_hidden_state_layer_ids=[2, 9]),
            r"config.json: target_layer_ids \[1, 8\] must lie in 0..7",
        ),
        (changed(transformer_layer_config="absent"), "config.json has no transformer_layer_config"),
    ],
)
def test_configs_we_cannot_run_are_refused(raw, message):
    with pytest.raises(ValueError, match=message):
        read(raw)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            dataclasses.replace(TOY, causal_in_block=True),
            "full-attention layers see their whole block.*causal_in_block true; export it with --format zlab",
        ),
        (
            dataclasses.replace(MIXED, causal_in_block=True),
            "full-attention layers see their whole block.*causal_in_block true; export it with --format zlab",
        ),
        (
            dataclasses.replace(TOY, target_layer_ids=(1, 3, 7), allow_last_layer_tap=True),
            "no tap on the target's last layer, 7; export the drafter with --format zlab",
        ),
    ],
)
def test_what_the_format_cannot_say_is_not_written(tmp_path, config, message):
    with pytest.raises(ValueError, match=message):
        export_speculators(config, DFlashDrafter(config).state_dict(), tmp_path / "x", target=TARGET)
    assert not (tmp_path / "x").exists()


def test_the_class_of_the_package_fills_in_a_block_size_of_8():
    assert read(changed(block_size="absent")).block_size == 8


def test_no_folder_of_either_format(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    save_file({"x": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="describes .*Llama.*, not a DFlashDraftModel"):
        load_folder(tmp_path)
