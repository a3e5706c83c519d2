"""What is said of a target, and which of its names other programs can open."""

import pytest

from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.card import model_card
from dflash_lightning.export.checkpoint import TrainedDrafter
from dflash_lightning.export.serve import launch_lines, target_note
from dflash_lightning.export.target import TargetFacts, target_facts
from dflash_lightning.export.write import write_drafter
from dflash_lightning.target.embedded import EMBEDDED
from tests.export.test_zlab import TOY


def test_a_target_on_this_machine_is_read_one_elsewhere_is_only_named(toy_target):
    found = target_facts(str(toy_target))
    assert found.architectures == ("Qwen3ForCausalLM",)
    assert (found.depth, found.hidden_size, found.vocab_size) == (8, 64, 53)
    assert len(found.digest) == 24
    assert not found.on_hub


@pytest.mark.parametrize(
    "name", ["nowhere/model", "/no/such/folder", "./gone", "../gone", "gone", "a/b/c", "~/gone/model"]
)
def test_what_is_not_here_is_no_error(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert target_facts(name) == TargetFacts(name)


def test_the_built_in_target_may_not_be_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert target_facts(EMBEDDED) == TargetFacts(EMBEDDED)


@pytest.mark.parametrize(
    ("content", "message"), [("{", "is not JSON: "), ("[1]", "it holds a list"), ("", "is not JSON: ")]
)
def test_a_damaged_config_is_named(tmp_path, content, message):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=f"{tmp_path}/config.json .*{message}"):
        target_facts(str(tmp_path))


def test_the_shape_of_a_multi_modal_target_is_its_texts(tmp_path):
    (tmp_path / "config.json").write_text(
        '{"architectures": ["X"], "hidden_size": 9, "text_config": {"hidden_size": 64, "vocab_size": 53}}'
    )
    found = target_facts(str(tmp_path))
    assert (found.architectures, found.depth, found.hidden_size) == (("X",), None, 64)


def cached(root, name):
    """As the hub's client leaves a model there."""
    folder = root / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "snapshots" / "abc" / "config.json").write_text('{"num_hidden_layers": 8}')


def base_model(facts):
    text = model_card(
        TOY, folder="x", dtype="bfloat16", target=facts, run=None, lines={"vLLM": "x"}, remote_code=False
    )
    return "base_model" in text


def test_only_a_name_that_is_surely_the_hubs_becomes_the_base_model(tmp_path, monkeypatch):
    """`owner/model` of a run may have been a folder beside it, which a checkpoint does not say."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    assert not base_model(target_facts("runs/target"))
    assert base_model(target_facts("owner/model", for_servers=True))
    cached(tmp_path / "cache", "owner/known")
    assert target_facts("owner/known").depth == 8
    assert base_model(target_facts("owner/known"))
    (tmp_path / "runs" / "target").mkdir(parents=True)
    assert not base_model(target_facts("runs/target", for_servers=True))
    assert not base_model(target_facts(EMBEDDED, for_servers=True))


@pytest.mark.parametrize(
    ("name", "shown", "note"),
    [
        ("owner/model", "owner/model", None),
        ("/models/on/the/server", "/models/on/the/server", None),
        ("./here", "./here", None),
        ("./gone", "TARGET", "TARGET: where the server has the folder that was ./gone in training"),
        ("a/b/c", "TARGET", "TARGET: where the server has the folder that was a/b/c in training"),
        (EMBEDDED, "TARGET", f"TARGET: the folder {EMBEDDED}-* in DFLASH_CACHE"),
        (None, "TARGET", "TARGET: folder or hub name of the model that the drafter was trained for"),
    ],
)
def test_no_line_names_what_no_server_can_open(name, shown, note, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    facts = None if name is None else TargetFacts(name)
    lines = launch_lines(TOY, "a", facts, format="zlab", remote_code=False)
    assert lines["vLLM"].startswith(f"vllm serve {shown} ")
    assert f"--model-path {shown} " in lines["SGLang"]
    found = target_note(facts)
    assert found is None if note is None else found.startswith(note)


@pytest.mark.parametrize("name", [EMBEDDED, "./gone"])
def test_speculators_format_names_no_target_that_cannot_be_opened(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained = TrainedDrafter(TOY, DFlashDrafter(TOY).state_dict(), name)
    with pytest.raises(ValueError, match=f"cannot open {name}: add --target with its folder or hub name"):
        write_drafter(trained, "out", target=TargetFacts(name), format="speculators")
    write_drafter(trained, "out", target=TargetFacts(name))
    assert "# TARGET: " in (tmp_path / "out" / "README.md").read_text()
