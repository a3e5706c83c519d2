"""A dry run tells the memory that `plan` tells, before anything can be too large."""

import pytest
import torch
import yaml
from lightning import Callback

from dflash_lightning.commands import plan
from dflash_lightning.lightning_cli import run_cli
from dflash_lightning.plan_view.yaml_settings import read_settings
from dflash_lightning.training import target_steps
from dflash_lightning.training.start.memory_estimate import memory_lines, model_settings_of
from tests.ranks.runs import toy_config
from tests.runs import make_store, toy_data, toy_module, toy_trainer
from tests.slow import slow
from tests.training.prefetch.test_stored_states import write

HEAD = "memory of a rank, estimated"


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return make_store(tmp_path_factory.mktemp("store"), toy_target, [10] * 8 + [30] * 8, held_out=[10])


def write_config(folder, target, store, *, trainer=None, data=None, **model):
    values = toy_config(folder / "run", target, store, delay=0.0)
    values["trainer"] |= {"callbacks": [], "enable_model_summary": False, **(trainer or {})}
    values["model"] |= model
    values["data"] |= data or {}
    config = folder / "toy.yaml"
    config.write_text(yaml.safe_dump(values))
    return f"--config={config}"


class Stop(Exception):
    pass


class Look(Callback):
    """Ends a run where a dry run tells its estimate."""

    def setup(self, trainer, pl_module, stage):
        self.settings = model_settings_of(pl_module)
        self.lines = memory_lines(pl_module, accumulate=trainer.accumulate_grad_batches)
        raise Stop


def look(root, module, store, **trainer):
    seen = Look()
    with pytest.raises(Stop):
        toy_trainer(root, callbacks=[seen], **trainer).fit(module, toy_data(store))
    return seen


def rows_below(text, head):
    """The indented rows below a heading, words only."""
    rows = text.split(head, 1)[1].splitlines()[1:]
    found = []
    for row in rows:
        if not row.startswith("  "):
            break
        found.append(row.split())
    return found


CASES = {
    "plain": {},  # without a precision, which is 32-true
    "bf16": {"trainer": {"precision": "bf16-mixed", "accumulate_grad_batches": 3}},
    "target": {"target_settings": {"dtype": "bfloat16"}},
    "drafter": {"drafter": {"num_layers": 1, "target_layer_ids": [1, 4]}, "head_chunk": 8},
    "fixed": {"data": {"anchor_slots": "fixed"}, "activation_checkpointing": True},
}


@pytest.mark.parametrize("name", ["plain", *slow(*[name for name in CASES if name != "plain"])])
def test_a_dry_run_tells_what_plan_tells(name, tmp_path, toy_target, store, capsys, caplog):
    config = write_config(tmp_path, toy_target, store, **CASES[name])
    assert plan.main([config]) == 0
    expected = rows_below(capsys.readouterr().out, "Memory of a rank, estimated")
    run_cli(["fit", config, "--dry_run=true"])
    (told,) = [r.getMessage() for r in caplog.records if HEAD in r.getMessage()]
    assert rows_below(told, HEAD) == expected
    assert expected[0][:4] == ["batch", "that", "needs", "most"]


def test_it_is_told_before_weights_are_loaded(tmp_path, toy_target, store, caplog, monkeypatch):
    """A target that does not fit its device ends the run there."""

    def load(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(target_steps, "build_target", load)
    with pytest.raises(torch.OutOfMemoryError):
        run_cli(["fit", write_config(tmp_path, toy_target, store), "--dry_run=true"])
    assert len([r for r in caplog.records if HEAD in r.getMessage()]) == 1


def test_settings_are_those_of_the_yaml(tmp_path, toy_target, store):
    config = write_config(tmp_path, toy_target, store, attention="flex", head_chunk=7)
    module = toy_module(toy_target, attention="flex", head_chunk=7)
    read = read_settings([config]).model
    seen = look(tmp_path / "run", module, store).settings
    assert read is not None
    assert {**vars(read), "shape": dict(read.shape)} == vars(seen)


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("own", "it has devices of its own: beside the drafter are only its embedding and head"),
        ("disk", "hidden states come from disk: only its embedding and head are loaded"),
        ("shared", None),
    ],
)
def test_what_of_the_target_is_elsewhere_is_said(where, line, tmp_path, toy_target, store):
    options = {"own": {"target_devices": 2}, "shared": {}}.get(where)
    if options is None:
        options = {"hidden_states": write(tmp_path / "states", toy_target, store)}
    lines = look(tmp_path / "run", toy_module(toy_target, **options), store).lines
    said = [text for text in lines if text.startswith("  of the target")]
    assert [text.split("  ")[-1] for text in said] == ([line] if line else [])
    assert lines[0] == HEAD
