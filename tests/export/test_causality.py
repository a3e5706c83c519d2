"""Which layers are causal within a block, in both formats and back: the keys, the config, the logits."""

import dataclasses
import itertools
import json

import pytest
import torch

from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.check import check_folder, config_differences, difference, hidden_states
from dflash_lightning.export.checkpoint import TrainedDrafter
from dflash_lightning.export.config_json import from_json_dict, to_json_dict
from dflash_lightning.export.formats import load_folder
from dflash_lightning.export.reload import answers
from dflash_lightning.export.speculators import (
    export_speculators,
    from_speculators_json,
    to_speculators_json,
)
from dflash_lightning.export.target import TargetFacts
from dflash_lightning.export.write import write_drafter
from dflash_lightning.export.zlab import export_zlab
from tests.export.test_zlab import TOY, rewrite_config

FULL, SLIDING = "full_attention", "sliding_attention"
KINDS = list(itertools.product((FULL, SLIDING), repeat=3))
VALUES = [False, True, "sliding"]
TARGET = TargetFacts("some/model", ("Qwen3ForCausalLM",))


def described(kinds, causal):
    window = 6 if SLIDING in kinds else None
    return dataclasses.replace(
        TOY, layer_types=kinds, sliding_window=window, causal_in_block=causal, initializer_range=0.2
    )


MIXED = described((SLIDING, SLIDING, FULL), "sliding")
"""As published drafters that mix their layers, and say nothing of causality."""


def read(raw):
    return from_json_dict(raw, source="config.json")


def test_the_release_of_a_drafter_for_qwen3_6_27b():
    """Four sliding layers of 2,048, then a full one, and no key for causality."""
    raw = to_json_dict(
        dataclasses.replace(
            TOY, num_layers=5, layer_types=(SLIDING,) * 4 + (FULL,), sliding_window=2048, causal_in_block=True
        )
    )
    del raw["is_causal"], raw["dflash_config"]["causal"]
    config = read(raw)
    assert config.causal_in_block == "sliding"
    assert [config.is_causal(kind) for kind in config.layer_types] == [True] * 4 + [False]
    assert to_json_dict(config) == raw


@pytest.mark.parametrize("causal", VALUES)
@pytest.mark.parametrize("kinds", KINDS)
def test_what_is_written_is_read_back_and_no_reader_is_left_to_guess(kinds, causal):
    config = described(kinds, causal)
    raw = to_json_dict(config)
    assert read(raw) == config
    stated = [raw.get("is_causal", "no key"), raw["dflash_config"].get("causal", "no key")]
    is_silent = causal == "sliding" and len(set(kinds)) == 2  # else one value holds for all layers
    assert stated == ["no key" if is_silent else config.causal_in_block] * 2


@pytest.mark.parametrize("key", ["is_causal", "dflash_config.causal"])
@pytest.mark.parametrize("causal", [False, True])
def test_a_key_counts_for_all_layers_of_a_mixture(key, causal):
    raw = to_json_dict(MIXED)
    (raw if key == "is_causal" else raw["dflash_config"])[key.split(".")[-1]] = causal
    assert read(raw) == dataclasses.replace(MIXED, causal_in_block=causal)


@pytest.mark.parametrize("silence", [{}, {"is_causal": None}])
def test_null_is_silence(silence):
    assert read(to_json_dict(MIXED) | silence) == MIXED


@pytest.mark.parametrize("causal", VALUES)
@pytest.mark.parametrize("kinds", KINDS)
def test_speculators_says_it_by_its_sliding_layers(kinds, causal):
    config = described(kinds, causal)
    if config.causal_in_block is True and FULL in kinds:
        with pytest.raises(ValueError, match="full-attention layers see their whole block"):
            to_speculators_json(config, TARGET)
        return
    raw = to_speculators_json(config, TARGET)
    assert raw["sliding_window_non_causal"] == (SLIDING in kinds and not config.causal_in_block)
    assert "is_causal" not in raw["transformer_layer_config"]
    assert from_speculators_json(raw, source="config.json") == config


def test_speculators_sliding_layers_are_causal_in_whatever_words_they_slide():
    raw = to_speculators_json(described((SLIDING,) * 3, True), TARGET)
    del raw["transformer_layer_config"]["layer_types"]
    raw["transformer_layer_config"]["max_window_layers"] = 1  # transformers' words for it
    config = from_speculators_json(raw, source="config.json")
    assert (config.layer_types, config.causal_in_block) == ((FULL, SLIDING, SLIDING), "sliding")


@pytest.mark.parametrize("kinds", [(SLIDING, SLIDING, FULL), (FULL, SLIDING, FULL)])
def test_there_and_back_again_no_byte_and_no_logit_differs(tmp_path, kinds):
    config = described(kinds, "sliding")
    head = torch.randn(53, 64, generator=torch.Generator().manual_seed(3))
    state = DFlashDrafter(config).state_dict()
    first = export_zlab(config, state, tmp_path / "a")
    there = export_speculators(config, load_folder(first).state, tmp_path / "b", target=TARGET, dtype=None)
    between = load_folder(there)
    back = export_zlab(between.config, between.state, tmp_path / "c", dtype=None)
    for name in ("config.json", "model.safetensors"):
        assert (back / name).read_bytes() == (first / name).read_bytes()
    expected = hidden_states(config, state, dict.fromkeys(state, torch.bfloat16)) @ head.T
    for folder in (first, there, back):
        assert torch.equal(answers(folder)["dflash_lightning"] @ head.T, expected)


@pytest.mark.parametrize("causal", [False, True])
def test_the_check_sees_another_causality(tmp_path, causal):
    state = DFlashDrafter(MIXED).state_dict()
    folder = export_zlab(MIXED, state, tmp_path, dtype=None)
    assert config_differences(MIXED, folder) == []
    rewrite_config(folder, lambda raw: raw.update(is_causal=causal))
    expected = [f"causal_in_block: {causal} there, sliding in the source"]
    assert config_differences(MIXED, folder) == expected
    found = difference("x", hidden_states(MIXED, state, {}), answers(folder)["dflash_lightning"])
    assert not found.is_same


@pytest.mark.slow
@pytest.mark.parametrize("format", ["zlab", "speculators"])
def test_a_fresh_process_and_transformers_give_its_hidden_states(tmp_path, format):
    state = DFlashDrafter(MIXED).state_dict()
    trained = TrainedDrafter(MIXED, state, "some/model")
    code = format == "zlab"
    write_drafter(trained, tmp_path / "x", target=TARGET, format=format, with_code=code)
    keys = json.loads((tmp_path / "x" / "config.json").read_text())
    assert "is_causal" not in keys
    found = check_folder(MIXED, state, tmp_path / "x")
    assert [one.reader for one in found] == ["dflash_lightning", *(["transformers"] if code else [])]
    assert [one.largest for one in found] == [0] * len(found)
