"""An exported folder in other programs: plain transformers 4.57 and 5, and vLLM's `speculators`.

`make test-formats` installs those that this environment does not have, each into a folder of its own; a test
whose program is missing is skipped.
"""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.checkpoint import TrainedDrafter
from dflash_lightning.export.formats import load_folder
from dflash_lightning.export.rounding import rounded
from dflash_lightning.export.target import target_facts
from dflash_lightning.export.write import write_drafter
from tests.export.test_zlab import TOY

MIXED = dataclasses.replace(
    TOY,
    layer_types=("sliding_attention", "full_attention", "sliding_attention"),
    sliding_window=32,  # wider than the text: from where it is measured differs between programs
    causal_in_block="sliding",
)

pytestmark = pytest.mark.slow
SCRIPTS = Path(__file__).parent / "others"
INSTALLED = Path(os.environ.get("DFLASH_OTHERS", Path(sys.prefix) / "others"))
CONTEXT = 9


def run(script, *arguments, packages=None):
    path = [str(INSTALLED / packages)] if packages else []
    environment = {
        **{k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        "PYTHONPATH": os.pathsep.join(path),
        "HF_HUB_OFFLINE": "1",
        "HF_MODULES_CACHE": str(Path(arguments[-1]).parent / "modules"),
    }
    command = [sys.executable, str(SCRIPTS / script), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def need(packages):
    if not (INSTALLED / packages).is_dir():
        pytest.skip(f"{packages} is not installed; `make test-formats` does that")


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    torch.manual_seed(0)
    config = Qwen3Config(
        hidden_size=64,
        vocab_size=53,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=48,
        tie_word_embeddings=False,
        initializer_range=0.25,
    )
    model = Qwen3ForCausalLM(config).eval()
    folder = tmp_path_factory.mktemp("target")
    model.save_pretrained(folder)
    return folder, model.get_input_embeddings().weight.detach(), model.lm_head.weight.detach()


@pytest.fixture(scope="module", params=[TOY, MIXED], ids=["full", "mixed"])
def trained(target, request):
    """Full-precision weights, as training leaves them."""
    drafter = DFlashDrafter(request.param)
    drafter.load_state_dict({k: v * 5 if v.ndim > 1 else v + 0.1 for k, v in drafter.state_dict().items()})
    return TrainedDrafter(request.param, drafter.state_dict(), str(target[0]))


@pytest.fixture(scope="module")
def inputs(target):
    _, embedding, head = target
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 52, (1, CONTEXT + TOY.block_size + 1), generator=generator)
    taps = torch.randn(1, ids.shape[1], 3 * 64, generator=generator)
    tokens = torch.tensor([[ids[0, CONTEXT], *[TOY.mask_token_id] * (TOY.block_size - 1)]])
    return {
        "block": embedding[tokens],
        "taps": taps,
        "head": head,
        "ids": ids,
        "anchor": torch.tensor(CONTEXT),
    }


@torch.no_grad()
def expected_logits(trained, inputs):
    """Of the training drafter, its weights rounded to bfloat16."""
    drafter = DFlashDrafter(trained.config)
    drafter.load_state_dict(rounded(trained.state, torch.bfloat16))
    positions = torch.arange(CONTEXT + TOY.block_size)[None]
    return drafter(inputs["block"], inputs["taps"][:, :CONTEXT], positions, None) @ inputs["head"].T


@pytest.mark.parametrize(("major", "packages"), [("5", None), ("4", "transformers4")])
def test_plain_transformers_gives_the_logits_of_the_training_drafter(
    trained, inputs, tmp_path, major, packages
):
    if packages:
        need(packages)
    folder, asked, answer = tmp_path / "drafter", tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write_drafter(trained, folder, target=target_facts(trained.target), with_code=True)
    save_file(inputs, asked)
    run("read_with_transformers.py", folder, asked, answer, packages=packages)
    with safe_open(answer, framework="pt") as file:
        assert file.metadata()["transformers"].split(".")[0] == major
    found, expected = load_file(answer), expected_logits(trained, inputs)
    assert expected.abs().max() > 1
    torch.testing.assert_close(found["logits"], expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(found["logits_with_cache"], expected, rtol=0, atol=1e-5)
    assert found["inv_freq"][1].item() == pytest.approx(1e6 ** (-2 / 16), rel=1e-6)
    assert found["taps"].tolist() == [1, 3, 5]
    assert found["block_size_and_mask"].tolist() == [4, 52]


@pytest.mark.parametrize(("major", "packages"), [("5", None), ("4", "transformers4")])
def test_caches_of_both_versions_keep_the_rows_that_verification_kept(tmp_path, major, packages):
    if packages:
        need(packages)
    run("keep_rows_with_transformers.py", tmp_path / "out.safetensors", packages=packages)
    with safe_open(tmp_path / "out.safetensors", framework="pt") as file:
        assert file.metadata()["transformers"].split(".")[0] == major
    found = {name: rows[0].tolist() for name, rows in load_file(tmp_path / "out.safetensors").items()}
    past, kept = list(range(6)), {"chain": [6, 7, 8], "tree": [6, 8, 11], "root": [6], "all": [*range(6, 13)]}
    for name, rows in kept.items():
        assert found[name] == past + rows, name
        assert found[f"{name}, next"] == [*past, *rows, 77], name
    for want in (0, 4, 13, 99):
        assert found[f"crop to {want}"] == list(range(min(want, 13)))


def test_speculators_gives_the_same_logits_and_saves_what_we_read_back(trained, inputs, tmp_path):
    need("speculators")
    folder, asked, answer = tmp_path / "drafter", tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write_drafter(trained, folder, target=target_facts(trained.target), format="speculators")
    save_file(inputs, asked)
    run("read_with_speculators.py", folder, asked, answer, tmp_path / "saved", packages="speculators")
    torch.testing.assert_close(
        load_file(answer)["logits"], expected_logits(trained, inputs), rtol=0, atol=1e-5
    )
    ours, theirs = load_folder(folder), load_folder(tmp_path / "saved")
    assert theirs.config == ours.config == trained.config
    assert theirs.target == trained.target
    assert all(torch.equal(theirs.state[name], tensor) for name, tensor in ours.state.items())
