"""A mistyped word is answered by one message that ends with what was probably meant."""

import pytest

from dflash_lightning.lightning_cli import read_config, run_cli
from dflash_lightning.main import main
from dflash_lightning.short_errors import meant
from tests.slow import slow

OPTIONS = ["-c", "--config", "--model", "--model.lr", "--trainer.max_steps", "--trainer.max_epochs"]


@pytest.mark.parametrize(
    ("message", "behind"),
    [
        ("unrecognized arguments: --modle.lr 3", "\nmodle.lr: did you mean model.lr"),
        ("unrecognized arguments: --confg=a.yaml", "\nconfg: did you mean config?"),
        ("Subcommand 'fit' does not accept option 'model.lrr'", "\nmodel.lrr: did you mean model.lr"),
        ("unrecognized arguments: --nothing.like.it 3", ""),
        ("unrecognized arguments: max_steps", ""),
        ('Parser key "model.lr": Expected a float', ""),
    ],
)
def test_the_options_that_look_most_like_it(message, behind):
    assert meant(message, OPTIONS).startswith(behind)
    assert bool(meant(message, OPTIONS)) == bool(behind)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("model:\n  lr: 1\n block_size: 4\n", ", line 3, column 2: expected <block end>, but found"),
        ("model: {lr: 1\n", ", line 2, column 1: expected ',' or '}'"),
        ("model:\n\tlr: 1\n", ", line 2, column 1: found character"),
        ("lr: 'a\n", ", line 2, column 1: found unexpected end of stream"),
    ],
)
@pytest.mark.parametrize("command", ["prepare", *slow("fit")])
def test_of_several_files_the_one_that_is_no_yaml_is_named(command, content, place, tmp_path, capsys):
    broken, whole = tmp_path / "broken.yaml", tmp_path / "whole.yaml"
    broken.write_text(content)
    whole.write_text("{}\n")
    for words in (["--config", str(whole), f"--config={broken}"], ["--config", str(broken)]):
        with pytest.raises(SystemExit) as left:
            main([command, *words])
        assert left.value.code == 2
        assert f"{broken}{place}" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["word", "yaml"])
def test_no_list_of_options_buries_the_message(way, tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text("model: {lrr: 1}\n")
    words = ["--model.lrr=1"] if way == "word" else ["--config", str(tmp_path / "mine.yaml")]
    with pytest.raises(SystemExit) as left:
        read_config(["--config", "configs/tiny.yaml", *words])
    assert left.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) <= 3
    assert lines[-1].startswith("model.lrr: did you mean model.lr")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{class_path: GradNrm}", "GradNrm: did you mean GradNorm?"),
        ("{class_path: BucketMix, init_args: {windoww: 3}}", "BucketMix takes window_steps, epoch_picture"),
        ("{class_path: EarlyStoping}", "EarlyStoping: did you mean EarlyStopping?"),
    ],
)
def test_a_mistyped_callback_is_one_message_too(entry, message, tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text(f"trainer: {{callbacks+: [{entry}]}}\n")
    with pytest.raises(SystemExit):
        read_config(["--config", "configs/tiny.yaml", "--config", str(tmp_path / "mine.yaml")])
    told = capsys.readouterr().err
    assert told.strip().endswith(message)
    assert "Subtypes" not in told
    assert "NoneType" not in told


@pytest.mark.parametrize(
    ("words", "guess"),
    [
        (["prepare", "--maxlength", "4"], "max-length"),
        (["prepare", "--hidden-states", "--stroe", "x"], "store"),
        (["regenerate", "--inptu", "x"], "input"),
        (["plan", "--confg", "x"], "config"),
        (["export", "--outptu", "x"], "output"),
        (["generate", "--promt", "x"], "prompt"),
        (["evaluate", "--jsn", "x"], "json"),
        (["report", "--txt"], "text"),
        (["checkpoints", "prune", "x", "--monitr", "y"], "monitor"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_every_command_guesses(words, guess, capsys):
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) <= 4
    assert f"did you mean {guess}" in lines[-1]


@pytest.mark.parametrize("command", ["validate", "test"])
def test_fresh_random_weights_are_not_measured(command):
    with pytest.raises(
        ValueError, match=f"{command} measures a checkpoint, and none is named: give --ckpt_path best"
    ):
        run_cli([command, "--config", "configs/tiny.yaml"])


def test_what_lightning_refuses_is_one_message_too(capsys):
    assert main(["fit", "--config", "configs/tiny.yaml", "--trainer.max_steps=-5"]) == 1
    assert "`max_steps` must be a non-negative integer or -1" in capsys.readouterr().err


def test_a_callback_of_ours_is_listed_once():
    words = ["fit", "--config", "configs/tiny.yaml", "--trainer.callbacks+=GradNorm"]
    with pytest.raises(ValueError, match=r"trainer.callbacks lists GradNorm 2 times: keep one"):
        run_cli(words)
