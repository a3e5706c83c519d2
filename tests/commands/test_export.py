import json

import pytest
import torch

from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.publish import publish
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.commands.evaluate import main as evaluate
from dflash_lightning.commands.export import main
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.zlab import load_zlab
from tests.decoding.drafters import random_drafter
from tests.export.test_checkpoint import as_fit_saves_it
from tests.export.test_zlab import TOY, rewrite_config


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "last.ckpt"
    torch.save(as_fit_saves_it(DFlashDrafter(TOY)), path)
    return path


def test_a_checkpoint_becomes_a_folder_and_the_next_command_is_printed(checkpoint, tmp_path, capsys):
    folder = tmp_path / "drafter"
    assert main(["--checkpoint", str(checkpoint), "--output", str(folder)]) == 0
    config, state = load_zlab(folder)
    assert config == TOY
    assert {tensor.dtype for tensor in state.values()} == {torch.bfloat16}
    printed = capsys.readouterr().out
    assert "77,408 parameters in bfloat16" in printed
    assert f"generate --target some/model --drafter {folder} --prompt" in printed


def test_precision_can_be_kept(checkpoint, tmp_path):
    folder = tmp_path / "drafter"
    assert main(["--checkpoint", str(checkpoint), "--output", str(folder), "--dtype", "float32"]) == 0
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"


def test_a_drafter_is_replaced_only_on_request(checkpoint, tmp_path, capsys):
    arguments = ["--checkpoint", str(checkpoint), "--output", str(tmp_path / "drafter")]
    assert main(arguments) == 0
    assert main(arguments) == 1
    assert "already holds a model; give another --output, or --overwrite" in capsys.readouterr().err
    assert main([*arguments, "--overwrite"]) == 0


def test_a_missing_checkpoint_is_one_message(tmp_path, capsys):
    assert main(["--checkpoint", str(tmp_path / "no.ckpt"), "--output", str(tmp_path / "x")]) == 1
    assert capsys.readouterr().err.startswith("export: ")
    assert not (tmp_path / "x").exists()


def test_a_checkpoint_is_found_by_its_address(tmp_path):
    """A folder here; s3:// goes through the same function."""

    def write(file):
        torch.save(as_fit_saves_it(DFlashDrafter(TOY)), file)

    job = SaveJob(step=8, epoch=0, kind="step", run_id="a", metrics={"val/tau": 2.125, "train/loss": 1.0})
    publish(LocalStore(tmp_path / "kept"), "", job, write)
    assert main(["--checkpoint", f"{tmp_path}/kept/step=8", "--output", str(tmp_path / "drafter")]) == 0
    assert load_zlab(tmp_path / "drafter")[0] == TOY
    card = (tmp_path / "drafter" / "README.md").read_text()
    assert "| val/tau | 2.125 |" in card
    assert "train/loss" not in card


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["--help"])
    assert exit_info.value.code == 0
    assert "python cli.py export --checkpoint runs/mine" in capsys.readouterr().out


def run(*arguments):
    return main([str(argument) for argument in arguments])


def test_a_card_and_the_servers_lines_come_with_it(checkpoint, tmp_path, capsys):
    folder = tmp_path / "drafter"
    assert run("--checkpoint", checkpoint, "--output", folder, "--target", "owner/model") == 0
    printed = capsys.readouterr().out
    assert "vllm serve owner/model --speculative-config" in printed
    assert "--speculative-num-draft-tokens 4" in printed
    assert "# drafter" in (folder / "README.md").read_text()


def test_a_folder_is_converted_there_and_back_without_loss(checkpoint, tmp_path, capsys):
    first, there, back = (tmp_path / name for name in ("a", "b", "c"))
    assert run("--checkpoint", checkpoint, "--output", first, "--dtype", "float32") == 0
    to_speculators = ("--checkpoint", first, "--output", there, "--format", "speculators")
    assert run(*to_speculators) == 1
    assert "format names the target, and the source does not: add --target" in capsys.readouterr().err
    assert not there.exists()
    assert run(*to_speculators, "--target", "owner/model") == 0
    assert f"vllm serve {there}\n" in capsys.readouterr().out
    assert run("--checkpoint", there, "--output", back) == 0
    assert "in float32" in capsys.readouterr().out
    for name in ("config.json", "model.safetensors"):
        assert (back / name).read_bytes() == (first / name).read_bytes()
    assert "--target owner/model" not in (first / "README.md").read_text()
    assert "owner/model" in (back / "README.md").read_text()


def test_code_for_transformers_is_copied_on_request(checkpoint, tmp_path, capsys):
    folder = tmp_path / "drafter"
    assert run("--checkpoint", checkpoint, "--output", folder, "--remote-code") == 0
    assert "dflash_lightning" not in (folder / "dflash.py").read_text()
    assert "--trust-remote-code" in capsys.readouterr().out
    arguments = ("--checkpoint", checkpoint, "--output", folder, "--remote-code", "--overwrite")
    assert run(*arguments, "--format", "speculators") == 1
    assert "--remote-code belongs to z-lab's format" in capsys.readouterr().err
    assert (folder / "dflash.py").is_file()


def test_figures_of_evaluate_go_on_the_card_of_the_drafter_they_are_of(
    target_folder, drafter_folder, target, tmp_path, capsys
):
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "t9 t8 t7"}\n')
    figures = tmp_path / "figures.json"
    asked = ("--target", target_folder, "--drafter", drafter_folder, "--prompts", tmp_path / "prompts.jsonl")
    assert evaluate([str(word) for word in (*asked, "--max-new-tokens", 6, "--json", figures)]) == 0
    mine, other = tmp_path / "mine", tmp_path / "other.ckpt"
    taken = ("--evaluation", figures, "--target", target_folder)
    assert run("--checkpoint", drafter_folder, "--output", mine, *taken) == 0
    assert "## Acceptance" in (mine / "README.md").read_text()
    torch.save(as_fit_saves_it(DFlashDrafter(random_drafter(target).config, seed=1)), other)
    capsys.readouterr()
    assert run("--checkpoint", other, "--output", tmp_path / "other", *taken) == 1
    assert "figures of something else than this drafter (other weights)" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_check_tells_this_drafter_from_another(checkpoint, tmp_path, capsys):
    folder = tmp_path / "drafter"
    assert run("--checkpoint", checkpoint, "--output", folder, "--remote-code", "--check") == 0
    said = capsys.readouterr().out
    assert "read by dflash_lightning in a fresh process: same" in said
    assert "read by transformers in a fresh process: same" in said
    other = tmp_path / "other.ckpt"
    torch.save(as_fit_saves_it(DFlashDrafter(TOY, seed=1)), other)
    before = (folder / "model.safetensors").read_bytes()
    assert run("--checkpoint", other, "--output", folder, "--check") == 1
    said = capsys.readouterr()
    assert "ANOTHER DRAFTER" in said.out
    assert "does not hold the drafter of" in said.err
    assert (folder / "model.safetensors").read_bytes() == before


@pytest.mark.slow
def test_check_names_what_hidden_states_do_not_show(checkpoint, tmp_path, capsys):
    folder = tmp_path / "drafter"
    assert run("--checkpoint", checkpoint, "--output", folder, "--check") == 0
    assert "config.json against that of the source: same" in capsys.readouterr().out
    rewrite_config(folder, lambda raw: raw["dflash_config"].update(mask_token_id=51))
    assert run("--checkpoint", checkpoint, "--output", folder, "--check") == 1
    said = capsys.readouterr()
    assert "ANOTHER DRAFTER (mask_token_id 51 there, 52 in the source)" in said.out
    assert "in a fresh process: same" in said.out
    assert "does not hold the drafter of" in said.err
