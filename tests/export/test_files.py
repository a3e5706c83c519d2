"""What a folder holds and what reading it refuses; spec/field.md 35, exports that load and are wrong."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.formats import load_drafter, load_folder
from dflash_lightning.export.rounding import rounded
from dflash_lightning.export.zlab import export_zlab
from dflash_lightning.target.geometry import require_fits
from tests.export.test_zlab import TOY, rewrite_config, rewrite_weights


@pytest.fixture
def folder(tmp_path):
    return export_zlab(TOY, DFlashDrafter(TOY).state_dict(), tmp_path / "drafter")


def split_in_two(folder):
    """As save_pretrained cuts large models."""
    path = folder / "model.safetensors"
    state = load_file(path)
    where = {name: f"model-0000{1 + index % 2}-of-00002.safetensors" for index, name in enumerate(state)}
    for shard in set(where.values()):
        save_file({name: state[name] for name in state if where[name] == shard}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    path.unlink()
    return state


def test_weights_in_several_files_are_read_as_one(folder):
    state = split_in_two(folder)
    found = load_folder(folder).state
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())


def test_a_missing_shard_is_named(folder):
    split_in_two(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="has no model-00002-of-00002.safetensors, which .*index"):
        load_folder(folder)


def test_a_cut_file_is_damaged(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="model.safetensors is damaged .*copy or export it again"):
        load_folder(folder)


def test_quantised_weights_are_refused_not_read_as_numbers(folder):
    def quantise(state):
        state["fc.weight"] = state["fc.weight"].to(torch.int8)

    rewrite_weights(folder, quantise)
    with pytest.raises(
        ValueError, match=r"another kind of number \(fc.weight is int8\).*before it was quant"
    ):
        load_folder(folder)


def test_borrowed_tensors_in_zlabs_format_are_refused(folder):
    """They would have been trained, or be another target's: reading past them could change the drafter."""
    rewrite_weights(folder, lambda state: state.update({"embed_tokens.weight": torch.ones(53, 64)}))
    with pytest.raises(ValueError, match="unknown embed_tokens.weight: z-lab's format borrows it"):
        load_folder(folder)


def taps_of_two(raw):
    raw["dflash_config"]["target_layer_ids"] = [1, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda raw: raw.update(hidden_size=32),
            r"fc.weight is \[64, 192\] where the config says \[32, 96\]",
        ),
        (taps_of_two, r"fc.weight is \[64, 192\] where the config says \[64, 128\]"),
        (
            lambda raw: raw["dflash_config"].update(mask_token_id=60),
            "config.json: mask_token_id 60 is not a row",
        ),
        (
            lambda raw: raw.update(num_target_layers=5),
            r"config.json: target_layer_ids \[1, 3, 5\] must lie in 0",
        ),
        (lambda raw: raw.update(layer_types=["full_attention"]), "layer_types must name every layer"),
    ],
)
def test_configs_of_another_drafter_are_named(folder, change, message):
    rewrite_config(folder, change)
    with pytest.raises(ValueError, match=message):
        load_folder(folder)


class Target:
    """What require_fits reads of a target's config."""

    model_type = "qwen3"
    hidden_size, vocab_size, num_hidden_layers = 64, 53, 8
    rope_parameters = {"rope_theta": 1e6}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("hidden_size", 128, "hidden size 64 against 128"),
        ("vocab_size", 100, "vocabulary 53 against 100"),
        ("num_hidden_layers", 36, "target layers 8 against 36"),
        ("rope_parameters", {"rope_theta": 1e4}, "rope base 1000000.0 against 10000.0"),
    ],
)
def test_a_drafter_of_another_target_is_refused(folder, field, value, message):
    drafter = load_drafter(folder)
    require_fits(drafter.config, Target())
    other = Target()
    setattr(other, field, value)
    with pytest.raises(ValueError, match=f"made for another target: {message} of this one"):
        require_fits(drafter.config, other)


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (
            float("nan"),
            torch.bfloat16,
            "1 tensors hold NaN or infinity in bfloat16, first b; the run has diverged",
        ),
        (float("inf"), None, "in float32, first b; the run has diverged: export an earlier checkpoint"),
        (1e5, torch.float16, "in float16, first b; export in bfloat16"),
    ],
)
def test_what_is_not_finite_is_not_exported(value, dtype, message):
    with pytest.raises(ValueError, match=message):
        rounded({"a": torch.ones(2), "b": torch.tensor([1.0, value])}, dtype)
