"""Stopped and resumed equals never stopped, bit for bit (design.md 5.3; spec/dflash.md 6.41)."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning import Callback
from lightning.pytorch.callbacks import Checkpoint

from dflash_lightning.callbacks.bucket_mix import BucketMix
from dflash_lightning.callbacks.grad_norm import GradNorm
from dflash_lightning.plan.batches import RandomOrder
from dflash_lightning.plan.order import Shuffle
from dflash_lightning.training.build import DrafterShape
from tests.runs import PLAN, make_store, save_toy_target, toy_data, toy_module, toy_trainer
from tests.slow import slow

LENGTHS = np.random.default_rng(5).integers(6, 33, 44).tolist()
HELD_OUT = [10, 30, 20, 15, 9]


class Recorder(Callback):
    """Writes down what every micro-batch was made of, and what every step used."""

    def __init__(self):
        self.batches = []
        self.rates = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        tokens, _ = batch
        self.batches.append((tokens.sample_ids.tolist(), tokens.anchors.tolist()))

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if pl_module.step_finished:
            self.rates.append(pl_module.last_lr)


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=HELD_OUT)


class SaveEach(Checkpoint):
    """A checkpoint after every optimizer step, from where Lightning's own ModelCheckpoint saves."""

    def __init__(self, folder):
        self.folder = folder

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if pl_module.step_finished:
            trainer.save_checkpoint(self.folder / f"step={trainer.global_step}.ckpt")


def run(root: Path, target, store, *, resume=None, callbacks=True, **options):
    """Train and keep every step's checkpoint. Returns everything that must be equal."""
    recorder = Recorder()
    extra = [GradNorm(), BucketMix()] if callbacks else []
    trainer = toy_trainer(
        root,
        callbacks=[*extra, recorder, SaveEach(root / "kept")],
        enable_checkpointing=True,
        log_every_n_steps=3,
        **options,
    )
    # Trees every 2 steps, logs every 3: sums that wait for their log are part of what is resumed.
    module, data = toy_module(target, tree_budgets=(3, 20), tree_every_n_steps=2), toy_data(store)
    trainer.fit(module, data, ckpt_path=resume)
    return {
        "root": root,
        "weights": {k: v.clone() for k, v in module.state_dict().items()},
        "moments": trainer.optimizers[0].state_dict()["state"] if trainer.optimizers else {},
        "recorder": recorder,
        "rows": rows(root),
        "position": data.position,
        "trainer": trainer,
    }


def rows(root: Path) -> list[dict[str, str]]:
    """All logged rows of the newest log, without the wall-clock ones."""
    versions = sorted((root / "logs").glob("version_*"), key=lambda p: int(p.name.split("_")[1]))
    path = versions[-1] / "metrics.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def assert_equal_state(ours, theirs):
    assert ours["position"] == theirs["position"]
    assert ours["weights"].keys() == theirs["weights"].keys()
    for name, value in ours["weights"].items():
        assert torch.equal(value, theirs["weights"][name]), name
    for index, moments in ours["moments"].items():
        for name, value in moments.items():
            assert torch.equal(value, theirs["moments"][index][name]), (index, name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, toy_target, store):
    """The run that never stops: 2 epochs, every step's checkpoint kept."""
    root = tmp_path_factory.mktemp("whole")
    return run(root, toy_target, store)


def checkpoint(whole, step):
    return whole["root"] / "kept" / f"step={step}.ckpt"


def test_the_run_has_something_to_prove(whole):
    steps = whole["position"].steps
    per_epoch = steps // 2
    assert steps >= 10
    first, second = whole["recorder"].batches, whole["recorder"].batches[2 * per_epoch :]
    assert first[:3] != second[:3]  # epochs have different orders and anchors
    assert len(set(whole["recorder"].rates)) > 5
    assert any(row.get("train/tree_streak_3") for row in whole["rows"])


@pytest.mark.parametrize("step", [4, 6, *slow(1, 7, 8, 11)])
def test_resuming_from_a_step_equals_never_stopping(whole, step, tmp_path, toy_target, store):
    ours = run(tmp_path, toy_target, store, resume=checkpoint(whole, step))
    assert_equal_state(ours, whole)
    micro_steps = len(ours["recorder"].batches)
    assert ours["recorder"].batches == whole["recorder"].batches[-micro_steps:]
    assert ours["recorder"].rates == whole["recorder"].rates[step:]
    assert ours["rows"] == logged_behind(whole, step)


def logged_behind(whole, step):
    """Rows that a run resumed behind `step` still has to write. A checkpoint at an epoch's end was saved
    before that epoch's validation, whose row carries the last step's index."""
    later = [row for row in whole["rows"] if int(row["step"]) >= step]
    if step % (whole["position"].steps // 2) == 0:
        later = [row for row in whole["rows"] if int(row["step"]) == step - 1 and row["val/tau"]] + later
    return later


def test_a_resume_of_a_resume_equals_never_stopping(whole, tmp_path, toy_target, store):
    once = run(tmp_path / "once", toy_target, store, resume=checkpoint(whole, 4))
    twice = run(tmp_path / "twice", toy_target, store, resume=checkpoint(once, 5))
    assert_equal_state(twice, whole)
    assert twice["rows"] == logged_behind(whole, 5)


@pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint.*")
def test_without_callbacks_resume_is_still_exact(whole, tmp_path, toy_target, store):
    ours = run(tmp_path, toy_target, store, resume=checkpoint(whole, 7), callbacks=False)
    assert_equal_state(ours, whole)


def test_a_finished_run_resumes_to_nothing_and_says_so(whole, tmp_path, toy_target, store):
    with pytest.warns(
        UserWarning, match="nothing is left to train: .* 2 epochs behind it, and trainer.max_epochs"
    ):
        ours = run(tmp_path, toy_target, store, resume=checkpoint(whole, 12))
    assert ours["recorder"].batches == []
    assert ours["position"].steps == 12


def test_every_file_of_a_checkpoint_loads_with_weights_only(whole):
    files = sorted((whole["root"] / "kept").iterdir())
    assert len(files) == 12
    for file in files:
        content = torch.load(file, weights_only=True)
        assert {"state_dict", "optimizer_states", "dflash", "DFlashDataModule"} <= content.keys()
        assert all(name.startswith("drafter.") for name in content["state_dict"])  # nothing of the target


@pytest.mark.parametrize("accumulate", [3, *slow(1)])
def test_on_another_accumulation_every_sample_comes_once(whole, accumulate, tmp_path, toy_target, store):
    """Another world size is another window too; with real processes: tests/ranks."""
    step = 4
    ours = run(
        tmp_path, toy_target, store, resume=checkpoint(whole, step), accumulate_grad_batches=accumulate
    )
    before = [ids for ids, _ in whole["recorder"].batches[: 2 * step]]
    rest_of_epoch = len(LENGTHS) - sum(map(len, before))
    seen = [i for ids in before for i in ids]
    for ids, _ in ours["recorder"].batches:
        if rest_of_epoch <= 0:
            break
        seen += ids
        rest_of_epoch -= len(ids)
    assert sorted(seen) == list(range(len(LENGTHS)))


@pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint.*")
def test_the_rate_of_the_command_line_is_used_on_resume(whole, tmp_path, toy_target, store):
    module, data, recorder = toy_module(toy_target, lr=0.5, betas=(0.5, 0.6)), toy_data(store), Recorder()
    trainer = toy_trainer(tmp_path, callbacks=[recorder])
    trainer.fit(module, data, ckpt_path=checkpoint(whole, 7))
    factor = 0.5 / 3e-3
    assert recorder.rates == pytest.approx([rate * factor for rate in whole["recorder"].rates[7:]])
    assert trainer.optimizers[0].param_groups[0]["betas"] == (0.5, 0.6)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (
            {"plan": replace(PLAN, order=Shuffle())},
            "plan.order: .*Credit.* in the checkpoint, .*Shuffle.* here",
        ),
        ({"plan": replace(PLAN, packing=RandomOrder())}, "plan.packing"),
        (
            {"plan": replace(PLAN, edges=(16, 32))},
            r"plan.edges: \[12, 20, 32\] in the .*, \[16, 32\] here",
        ),
        ({"plan": replace(PLAN, max_tokens=128)}, "plan.max_tokens: 96 in the checkpoint, 128 here"),
        ({"seed": 1}, "seed: 0 in the checkpoint, 1 here"),
    ],
)
def test_a_checkpoint_of_another_plan_is_refused(whole, options, named, tmp_path, toy_target, store):
    trainer, data = toy_trainer(tmp_path), toy_data(store, **options)
    with pytest.raises(ValueError, match=named) as refusal:
        trainer.fit(toy_module(toy_target), data, ckpt_path=checkpoint(whole, 4))
    saved = torch.load(checkpoint(whole, 4), weights_only=True)["DFlashDataModule"]["plan"]["digest"]
    ours = data.epochs.plan(0).digest
    assert saved in str(refusal.value)
    assert ours in str(refusal.value)
    assert saved != ours
    assert "model.init_from" in str(refusal.value)


def test_a_checkpoint_of_another_dataset_is_refused(whole, tmp_path, toy_target):
    other = make_store(tmp_path / "other", toy_target, LENGTHS[:-1] + [6])
    with pytest.raises(ValueError, match="store: .* in the checkpoint, .* here"):
        toy_trainer(tmp_path).fit(toy_module(toy_target), toy_data(other), ckpt_path=checkpoint(whole, 4))


def test_a_checkpoint_of_another_drafter_is_refused(whole, tmp_path, toy_target, store):
    module = toy_module(toy_target, drafter=DrafterShape(num_layers=1))
    with pytest.raises(ValueError, match="another drafter .*num_layers: 2 in the checkpoint, 1 now"):
        toy_trainer(tmp_path).fit(module, toy_data(store), ckpt_path=checkpoint(whole, 4))


def test_a_checkpoint_of_another_target_is_refused(whole, tmp_path, store):
    """The same shape and tokenizer, other weights: what fine-tuning makes of a target."""
    tuned = save_toy_target(tmp_path / "tuned", seed=1)
    with pytest.raises(ValueError, match=r"trained with target .* of digest .*, but .*tuned has .*init_from"):
        toy_trainer(tmp_path).fit(toy_module(tuned), toy_data(store), ckpt_path=checkpoint(whole, 4))


@pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint.*")
def test_a_target_in_another_folder_is_the_same(whole, tmp_path, store):
    moved = save_toy_target(tmp_path / "moved")
    toy_trainer(tmp_path).fit(toy_module(moved), toy_data(store), ckpt_path=checkpoint(whole, 4))


@pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint.*")
def test_another_target_can_be_measured(whole, tmp_path, toy_target):
    tuned = save_toy_target(tmp_path / "tuned", seed=1)
    held_out = make_store(tmp_path / "held_out", toy_target, [8], held_out=[9, 12])
    (values,) = toy_trainer(tmp_path).validate(
        toy_module(tuned), toy_data(held_out), ckpt_path=checkpoint(whole, 4), verbose=False
    )
    assert values["val/tau"] >= 1
