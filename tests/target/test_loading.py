import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash_lightning.target.loading import is_hub_name, load_config, load_target
from tests.toy import LAYERS, VOCAB, toy_llama, toy_model


@pytest.fixture
def folder(tmp_path):
    toy_model().save_pretrained(tmp_path)
    return tmp_path


def rewrite(folder, change):
    path = folder / "model.safetensors"
    state = load_file(path)
    change(state)
    save_file(state, path, metadata={"format": "pt"})


def test_a_saved_target_comes_back_with_its_weights(folder):
    target = load_target(folder, dtype=torch.float32)
    ids = torch.arange(7)[None]
    with torch.no_grad():
        assert torch.equal(target.model(ids).logits, toy_model()(ids).logits)
    assert (target.depth, target.vocab_size) == (LAYERS, VOCAB)
    assert load_target(folder).dtype == torch.bfloat16


def test_a_tied_target_needs_no_head_in_the_file(tmp_path):
    toy_llama(tied=True).save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    target = load_target(tmp_path, dtype=torch.float32)
    assert target.head.data_ptr() == target.parts.embed.weight.data_ptr()


def test_the_config_opens_without_weights(folder):
    (folder / "model.safetensors").unlink()
    assert load_config(folder).num_hidden_layers == LAYERS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("lm_head.weight"), r"lacks 1 weights .* first lm_head.weight"),
        (
            lambda state: state.pop("model.layers.3.mlp.up_proj.weight"),
            "first model.layers.3.mlp.up_proj.weight",
        ),
    ],
)
def test_missing_weights_are_an_error_not_random_numbers(folder, change, message):
    rewrite(folder, change)
    with pytest.raises(ValueError, match=message):
        load_target(folder)


def test_a_config_of_another_shape_is_an_error(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 96}))
    with pytest.raises((ValueError, RuntimeError), match="shape|mismatch"):
        load_target(folder)


def test_a_name_that_is_neither_folder_nor_model_says_both(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # else it retries for half a minute
    with pytest.raises(FileNotFoundError, match="'nobody/nothing' is no folder here and could not be had"):
        load_config("nobody/nothing")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("Qwen/Qwen3-8B", True),
        ("owner/model_1.5", True),
        ("model", False),
        ("a/b/c", False),
        ("/tmp/model", False),
        ("./model", False),
        ("../model", False),
        ("~/model", False),
        ("owner/", False),
        ("owner/.hidden", False),
        ("owner/model.git", False),
        ("owner/mo..del", False),
    ],
)
def test_a_hub_name_is_what_the_hub_takes_for_one(name, is_one):
    assert is_hub_name(name) == is_one


@pytest.mark.parametrize("name", ["./gone", "../gone", "gone"])
def test_a_relative_folder_that_is_gone_is_a_missing_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"target '{name}': .*gone is not there. Give a Hugging Face"):
        load_config(name)


def test_a_folder_here_is_none_of_the_hubs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "model").mkdir(parents=True)
    assert not is_hub_name("owner/model")
