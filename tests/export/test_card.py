"""The model card, the launch lines and where their facts come from: nothing that is not known has a line."""

import ast
import dataclasses
import json
import shlex

import pytest
import torch

from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.card import model_card
from dflash_lightning.export.checkpoint import TrainedDrafter, read_checkpoint
from dflash_lightning.export.facts import RunFacts, settings_digest
from dflash_lightning.export.serve import generate_line, launch_lines
from dflash_lightning.export.target import TargetFacts
from dflash_lightning.export.write import write_drafter
from tests.export.test_checkpoint import as_fit_saves_it
from tests.export.test_zlab import QWEN3_8B, TOY


def trained_checkpoint(path, **callback):
    content = as_fit_saves_it(DFlashDrafter(TOY))
    content["dflash"] |= {"settings": {"model.lr": 0.002}, "logged": {"tokens": 1_234_567}}
    content["DFlashDataModule"] = {
        "position": {"epoch": 3, "cursor": 0, "steps": 81},
        "plan": {"digest": "9f", "settings": {"store": "5e", "samples": 960, "seed": 0, "num_anchors": 24}},
    }
    best = {"monitor": "val/tau", "best_model_score": torch.tensor(2.5), "best_model_path": "runs/best.ckpt"}
    content["callbacks"] = {"ModelCheckpoint{...}": best | callback, "Other": {"steps": 2}}
    torch.save(content, path)
    return read_checkpoint(path).run


def test_the_facts_of_a_run_are_those_of_its_checkpoint(tmp_path):
    run = trained_checkpoint(tmp_path / "best.ckpt")
    assert (run.steps, run.epochs, run.tokens, run.samples) == (81, 3, 1_234_567, 960)
    assert (run.store, run.plan, run.plan_epoch) == ("5e", "9f", 3)
    assert run.settings == {"model.lr": 0.002, "data.num_anchors": 24, "data.seed": 0}
    assert run.metrics == {"val/tau": 2.5}
    assert len(run.digest) == 24


@pytest.mark.parametrize(
    ("name", "callback"),
    [("last.ckpt", {}), ("best.ckpt", {"monitor": None}), ("best.ckpt", {"monitor": "train/loss"})],
)
def test_a_score_of_other_weights_is_no_fact_of_these(tmp_path, name, callback):
    assert trained_checkpoint(tmp_path / name, **callback).metrics == {}


def test_a_manifests_figures_come_first(tmp_path):
    trained_checkpoint(tmp_path / "best.ckpt")
    figures = {"val/tau": 3.0, "val/streak": 2.0, "train/loss": 1.0}
    found = read_checkpoint(tmp_path / "best.ckpt", metrics=figures).run
    assert found.metrics == {"val/tau": 3.0, "val/streak": 2.0}


def test_a_bare_checkpoint_has_no_facts_and_no_error(tmp_path):
    torch.save(as_fit_saves_it(DFlashDrafter(TOY)), tmp_path / "x.ckpt")
    assert read_checkpoint(tmp_path / "x.ckpt").run == RunFacts()


def test_the_digest_tells_settings_apart():
    one = settings_digest({"a": 1, "b": 2}, {"lr": 1})
    assert one == settings_digest({"b": 2, "a": 1}, {"lr": 1})
    assert one != settings_digest({"a": 1, "b": 2}, {"lr": 2})


def card(**changes):
    given = {
        "folder": "drafters/mine",
        "dtype": "bfloat16",
        "target": TargetFacts("owner/model", digest="d1", on_hub=True),
        "run": RunFacts(
            steps=81, settings={"x": None, "model.objective": "CE(a|b)"}, metrics={"val/tau": 2.5}
        ),
        "lines": {"vLLM": "vllm serve owner/model"},
        "remote_code": True,
    }
    return model_card(TOY, **given | changes)


def test_every_known_fact_is_on_the_card():
    text = card()
    assert text.startswith("---\nlibrary_name: transformers\nbase_model: owner/model\n")
    for line in (
        "# mine",
        "| parameters | 77,408 in bfloat16 |",
        "| tapped target layers | 1, 3, 5 |",
        "| digest of the target, at export | d1 |",
        "| optimizer steps | 81 |",
        "| `model.objective` | `CE(a\\|b)` |",
        "| val/tau | 2.5 |",
        "# vLLM\nvllm serve owner/model",
        'AutoModel.from_pretrained("drafters/mine", trust_remote_code=True)',
    ):
        assert line in text


@pytest.mark.parametrize(
    ("causal", "row"),
    [(False, None), (True, "all layers"), ("sliding", "sliding layers")],
)
def test_the_card_says_which_layers_are_causal(causal, row):
    kinds = ("sliding_attention", "sliding_attention", "full_attention")
    config = dataclasses.replace(TOY, layer_types=kinds, sliding_window=32, causal_in_block=causal)
    text = model_card(
        config, folder="z", dtype="bfloat16", target=None, run=None, lines={}, remote_code=False
    )
    assert "| sliding window | 32 |" in text
    assert (f"| causal within a block | {row} |" in text) == bool(row)
    assert ("causal" in text) == bool(row)


@pytest.mark.parametrize("folder", ["z", "d/z", "/abs/z", "my drafters/z", 'a"b/z', "./z"])
def test_all_lines_of_a_card_name_the_folder_alike(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = launch_lines(TOY, folder, None, format="zlab", remote_code=True)
    text = card(folder=folder, lines=lines)
    call = ast.parse(text.split("```python\n")[1].split("```")[0]).body[-1].value
    words = shlex.split(lines["SGLang"])
    assert call.args[0].value == folder == words[words.index("--speculative-draft-model-path") + 1]
    assert "\n# z\n" in text


def test_a_card_has_a_title_wherever_it_lies(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    assert "\n# mine\n" in card(folder=".")


@pytest.mark.parametrize(
    ("epoch", "row"), [(1, "| digest of the plan, epoch 1 | 9f |"), (None, "| digest of the plan | 9f |")]
)
def test_the_plans_digest_names_its_epoch(epoch, row):
    """Each epoch has another: `fit` prints that of the epoch it starts in."""
    assert row in card(run=RunFacts(plan="9f", plan_epoch=epoch))


def test_the_digest_of_training_stands_for_the_target():
    text = card(run=RunFacts(target_digest="d0"))
    assert "| digest of the target, in training | d0 |" in text
    assert "at export" not in text


def test_a_drafter_is_not_exported_for_another_target(tmp_path):
    trained = TrainedDrafter(TOY, DFlashDrafter(TOY).state_dict(), "a/model", RunFacts(target_digest="d0"))
    with pytest.raises(
        ValueError, match=r"trained with target a/model of digest d0, but b/model has d1.*--target"
    ):
        write_drafter(trained, tmp_path / "out", target=TargetFacts("b/model", digest="d1"))
    assert not (tmp_path / "out").exists()
    for shape, words in {
        "depth": "layers 8 against 36",
        "hidden_size": "hidden size 64 against 36",
        "vocab_size": "vocabulary 53 against 36",
    }.items():
        with pytest.raises(ValueError, match=f"for another target than b/model: {words} there. Give the"):
            write_drafter(trained, tmp_path / "out", target=TargetFacts("b/model", **{shape: 36}))
    assert not (tmp_path / "out").exists()
    for known in (
        TargetFacts("b/model", digest="d0", depth=8, hidden_size=64, vocab_size=53),
        TargetFacts("b/model"),
    ):  # the same, or not here to ask
        write_drafter(trained, tmp_path / (known.digest or "unknown"), target=known)


def test_measured_acceptance_has_its_section():
    assert "## Acceptance\n\n| all | 2.35 |\n\n## Serving" in card(acceptance="| all | 2.35 |")
    assert "## Acceptance" not in card()


def test_what_is_not_known_has_no_line():
    text = card(run=None, target=None, remote_code=False)
    for word in ("Training", "None", "base_model", "digest", "trust_remote_code", "Held-out"):
        assert word not in text
    assert "None" not in card()
    assert "base_model" not in card(target=TargetFacts("/a/folder"))


def test_each_held_out_figure_stands_under_how_it_was_measured():
    figures = {"val/tau": 2.5, "val/tree_tau_8": 3.0, "val/decode_tau": 2.0, "val/lookup_tau": 1.5}
    text = card(run=RunFacts(metrics=figures | {"val/decode_tau_first32": float("nan")}))
    section = text.split("## Held-out figures of these weights\n\n")[1].split("\n\n## ")[0]
    parts = section.split("\n\n")
    assert parts[0].startswith("Teacher-forced, over the anchors")
    assert parts[1].splitlines()[2:] == ["| val/tau | 2.5 |", "| val/tree_tau_8 | 3 |"]
    assert parts[2].startswith("Draft and verify on held-out prompts")
    assert parts[3].splitlines()[2:] == ["| val/decode_tau | 2 |"]
    assert parts[4].startswith("Prompt lookup, without the drafter")
    assert parts[5].splitlines()[2:] == ["| val/lookup_tau | 1.5 |"]
    alone = card(run=RunFacts(metrics={"val/decode_tau": 2.0}))
    assert "Teacher-forced" not in alone
    assert "Held-out" not in card(run=RunFacts(metrics={"val/decode_tau": float("nan")}))


def test_each_server_is_told_its_own_count_of_tokens():
    lines = launch_lines(
        QWEN3_8B, "drafters/my one", TargetFacts("Qwen/Qwen3-8B"), format="zlab", remote_code=False
    )
    vllm, sglang = shlex.split(lines["vLLM"]), shlex.split(lines["SGLang"])
    assert vllm[:3] == ["vllm", "serve", "Qwen/Qwen3-8B"]
    assert json.loads(vllm[4]) == {
        "method": "dflash",
        "model": "drafters/my one",
        "num_speculative_tokens": 15,
    }
    assert sglang[sglang.index("--speculative-num-draft-tokens") + 1] == "16"
    assert sglang[sglang.index("--speculative-draft-model-path") + 1] == "drafters/my one"
    assert "--trust-remote-code" not in sglang


def test_speculators_folders_are_served_by_their_own_name():
    lines = launch_lines(
        QWEN3_8B, "drafters/a", TargetFacts("Qwen/Qwen3-8B"), format="speculators", remote_code=False
    )
    assert lines["vLLM"] == "vllm serve drafters/a"
    assert "SGLang" not in lines


def test_a_target_that_is_not_known_is_left_to_fill_in():
    assert "vllm serve TARGET " in launch_lines(TOY, "a", None, format="zlab", remote_code=True)["vLLM"]
    assert "--target TARGET --drafter a " in generate_line("a", None)
