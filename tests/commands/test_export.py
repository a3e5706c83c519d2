import json
import shutil

import pytest
import torch

from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.publishing.publish import publish
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
    assert "already holds a drafter; give another --output, or --overwrite" in capsys.readouterr().err
    assert main([*arguments, "--overwrite"]) == 0


OTHERS = {
    "a target": {"config.json": '{"architectures": ["Qwen3ForCausalLM"]}', "tokenizer.json": "{}"},
    "another drafter": {"config.json": '{"speculators_model_type": "eagle3"}'},
    "a config without architectures": {"config.json": '{"architectures": null}'},
    "a damaged config": {"config.json": "{"},
    "a list for a config": {"config.json": "[]"},
    "weights alone": {"model.safetensors": "x"},
    "an index of weights": {"model.safetensors.index.json": "{}", "model-00001-of-00002.safetensors": "x"},
    "a project": {"README.md": "# mine", "dflash.py": "pass"},
    "an export of another model, cut short": {
        "config.json.part": '{"architectures": ["X"]}',
        "README.md": "",
    },
}


@pytest.mark.parametrize("options", [(), ("--overwrite",), ("--check",), ("--overwrite", "--check")])
@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_drafter_is_never_replaced(kind, options, checkpoint, tmp_path, capsys):
    folder = tmp_path / "there"
    folder.mkdir()
    for name, text in OTHERS[kind].items():
        (folder / name).write_text(text)
    assert run("--checkpoint", checkpoint, "--output", folder, *options) == 1
    assert {path.name: path.read_text() for path in folder.iterdir()} == OTHERS[kind]
    said = capsys.readouterr().err
    if "config.json" in OTHERS[kind]:
        rule = "holds a model that is no DFlash drafter, so --overwrite does not replace it; give another"
    else:
        rule = "and no drafter, so an export does not replace "
    assert said.startswith(f"export: {folder} holds ")
    assert rule in said
    assert said.endswith("give another --output\n")


def test_a_target_given_for_the_output_stays_whole(checkpoint, toy_target, tmp_path, capsys):
    """A real one, and each of its files."""
    copy = shutil.copytree(toy_target, tmp_path / "target")
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    assert run("--checkpoint", checkpoint, "--output", copy, "--overwrite") == 1
    assert "is no DFlash drafter" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


@pytest.mark.parametrize("there", [{}, {"scores.json": "{}"}, {"README.md.part": "cut"}])
def test_what_nothing_is_lost_of_is_written(there, checkpoint, tmp_path):
    folder = tmp_path / "there"
    folder.mkdir()
    for name, text in there.items():
        (folder / name).write_text(text)
    assert run("--checkpoint", checkpoint, "--output", folder) == 0
    assert load_zlab(folder)[0] == TOY


@pytest.mark.parametrize("format", ["zlab", "speculators"])
def test_an_export_that_was_cut_short_is_written_again(format, checkpoint, tmp_path):
    """As a kill between the files leaves it: config.json comes last."""
    folder = tmp_path / "there"
    words = ("--checkpoint", checkpoint, "--output", folder, "--format", format, "--target", "owner/model")
    assert run(*words) == 0
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "config.json").rename(folder / "config.json.part")
    assert run(*words) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole
    assert run(*words, "--overwrite") == 0


def test_a_file_is_no_folder(checkpoint, tmp_path, capsys):
    assert run("--checkpoint", checkpoint, "--output", checkpoint, "--overwrite") == 1
    assert f"{checkpoint} is a file, and an export is a folder: give another" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (("--target", "owner/model"), "owner/model was not checked: it is in no cache here"),
        (("--target", "/no/such/model"), "/no/such/model was not checked: there is no model's config.json"),
        ((), None),  # the run's own name: nothing was claimed
    ],
)
def test_a_target_that_nothing_could_check_is_said_to_be_so(words, note, checkpoint, tmp_path, capsys):
    assert run("--checkpoint", checkpoint, "--output", tmp_path / "x", *words) == 0
    printed = capsys.readouterr().out
    assert ("was not checked" in printed) == (note is not None)
    assert (note or "") in printed
    assert "was not checked" not in (tmp_path / "x" / "README.md").read_text()  # true of this machine only


def test_a_target_that_is_here_is_checked_and_needs_no_note(checkpoint, toy_target, tmp_path, capsys):
    assert run("--checkpoint", checkpoint, "--output", tmp_path / "x", "--target", toy_target) == 0
    assert "was not checked" not in capsys.readouterr().out


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
    assert "ANOTHER DRAFTER (mask_token_id: 51 there, 52 in the source)" in said.out
    assert "in a fresh process: same" in said.out
    assert "does not hold the drafter of" in said.err
