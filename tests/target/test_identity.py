import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash_lightning.target.identity import target_digest
from tests.toy import toy_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    toy_model().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copy")


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_files_and_places_do_not_matter(saved, folder):
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    for i, part in enumerate((names[::2], names[1::2])):
        save_file({name: weights[name] for name in part}, folder / f"model-{i}-of-2.safetensors")
    (folder / "model.safetensors").unlink()
    change_config(folder, transformers_version="9.9", use_cache=False, dtype="bfloat16")
    assert target_digest(folder) == target_digest(saved)
    assert len(target_digest(saved)) == 24


@pytest.mark.parametrize("values", [{"rms_norm_eps": 1e-3}, {"rope_parameters": {"rope_theta": 5.0}}])
def test_a_config_that_computes_something_else_is_another_target(saved, folder, values):
    change_config(folder, **values)
    assert target_digest(folder) != target_digest(saved)


def test_a_fine_tuned_tensor_makes_another_target_whichever_it_is(saved, folder):
    path = folder / "model.safetensors"
    original, digests = load_file(path), {target_digest(saved)}
    for name in original:
        changed = {**original, name: original[name] + 1e-3 * torch.randn_like(original[name])}
        save_file(changed, path)
        digests.add(target_digest(folder))
    assert len(digests) == len(original) + 1


def test_two_tensors_that_changed_places_make_another_target(saved, folder):
    path, one = folder / "model.safetensors", "model.layers.0.mlp.up_proj.weight"
    weights = load_file(path)
    other = "model.layers.1.mlp.up_proj.weight"
    weights[one], weights[other] = weights[other], weights[one]
    save_file(weights, path)
    assert target_digest(folder) != target_digest(saved)


def test_weights_in_torchs_own_format_count_too(saved, folder):
    path = folder / "pytorch_model.bin"
    (folder / "model.safetensors").unlink()
    torch.save({"w": torch.zeros(300)}, path)
    zeros = target_digest(folder)
    torch.save({"w": torch.ones(300)}, path)
    assert target_digest(folder) != zeros


def test_what_is_no_target_is_refused(folder):
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match=r"model.safetensors is damaged: its header cannot be read"):
        target_digest(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match="has no config.json"):
        target_digest(folder)
