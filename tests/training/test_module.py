"""The module and the DataModule through a real Trainer: order, lengths, refusals, learning, and stops where
Lightning's own counters are easily wrong. Stop and resume as such: test_resume.py."""

from datetime import timedelta

import numpy as np
import pytest
import torch
from lightning import Callback
from lightning.pytorch.callbacks import (
    Checkpoint,
    EarlyStopping,
    GradientAccumulationScheduler,
    ModelCheckpoint,
)

from dflash_lightning.objective.kinds import CrossEntropy, Distillation, DPace
from dflash_lightning.plan.epoch import plan_epoch
from tests.ranks import jobs
from tests.ranks.jobs import Recorder, read_rows
from tests.runs import make_store, toy_data, toy_module, toy_trainer
from tests.slow import slow

LENGTHS = np.random.default_rng(5).integers(6, 33, 44).tolist()
HELD_OUT = [10, 30, 20]


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=HELD_OUT)


def fit(root, target, store, **options):
    return jobs.fit(str(root), str(target), str(store), **options)


# --- order and lengths


class LoaderLengths(Callback):
    """len(loader), and what Lightning made of it, epoch by epoch."""

    def __init__(self):
        self.pairs = []

    def on_train_epoch_start(self, trainer, pl_module):
        self.pairs.append((len(trainer.train_dataloader), trainer.num_training_batches))


@pytest.mark.slow
def test_every_epoch_runs_its_own_plan_to_the_end(tmp_path, toy_target, store):
    recorder, lengths = Recorder(), LoaderLengths()
    trainer = toy_trainer(tmp_path, callbacks=[recorder, lengths], max_epochs=3, accumulate_grad_batches=1)
    data = toy_data(store, seed=3)
    trainer.fit(toy_module(toy_target), data)
    orders = []
    for epoch in range(3):
        ours = [batch["ids"] for batch in recorder.batches if batch["epoch"] == epoch]
        plan = plan_epoch(
            data.epochs.samples, data.epochs.config, num_anchors=5, block_size=4, seed=3, epoch=epoch
        )
        assert ours == [plan.batch(i).tolist() for i in range(plan.num_batches)]
        assert lengths.pairs[epoch] == (plan.num_batches, plan.num_batches)
        orders.append(ours)
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert data.position.steps == trainer.global_step == sum(map(len, orders))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*persistent_workers.*")  # a loader lives for one epoch: nothing to keep
def test_workers_give_the_same_batches(tmp_path, toy_target, store):
    without = fit(tmp_path / "none", toy_target, store, max_epochs=2)
    workers = fit(tmp_path / "two", toy_target, store, max_epochs=2, data={"num_workers": 2})
    assert workers["batches"] == without["batches"]
    assert workers["rows"] == without["rows"]


# --- refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"use_distributed_sampler": True}, "use_distributed_sampler must be false"),
        ({"reload_dataloaders_every_n_epochs": 0}, "reload_dataloaders_every_n_epochs must be 1, got 0"),
        ({"reload_dataloaders_every_n_epochs": 2}, "reload_dataloaders_every_n_epochs must be 1, got 2"),
        ({"limit_train_batches": 4}, "limit_train_batches is 4 .* use trainer.max_steps"),
        ({"limit_train_batches": 1}, "limit_train_batches is 1 "),  # an integer is a number of batches
        ({"limit_train_batches": 0.5}, "limit_train_batches is 0.5"),
        ({"overfit_batches": 1}, "limit_train_batches is 1|overfit_batches is 1"),
        ({"val_check_interval": 0.5}, r"val_check_interval is 0\.5: validate at the end of every n-th epoch"),
        ({"val_check_interval": 4}, "val_check_interval is 4: .* check_val_every_n_epoch null"),
        ({"val_check_interval": 3, "check_val_every_n_epoch": None}, "a multiple of accumulate_grad_batches"),
        ({"val_check_interval": timedelta(minutes=1)}, "val_check_interval is a time"),
        ({"precision": "bf16-true"}, "precision is 'bf16-true', but only 32-true and bf16-mixed"),
        ({"gradient_clip_algorithm": "value"}, "gradients are clipped by their global norm"),
        ({"gradient_clip_val": -1.0}, "gradient_clip_val is -1.0: .* must be above 0; null does not clip"),
        ({"gradient_clip_val": 0.0}, "gradient_clip_val is 0.0: .* must be above 0"),
        ({"accumulate_grad_batches": 0}, "accumulate_grad_batches counts .* at least 1, got 0"),
        ({"max_epochs": -1}, "the run has no end: set trainer.max_epochs or trainer.max_steps"),
        ({"callbacks": [GradientAccumulationScheduler({1: 4})]}, "GradientAccumulationScheduler is in"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*max_epochs.*")
@pytest.mark.filterwarnings("ignore:.*overfit.*")
def test_trainer_settings_that_would_break_the_plan_are_refused(
    options, message, tmp_path, toy_target, store
):
    settings = dict(options)
    if "callbacks" in settings:
        settings["accumulate_grad_batches"] = 1
    with pytest.raises(ValueError, match=message):
        toy_trainer(tmp_path, **settings).fit(toy_module(toy_target), toy_data(store))


@pytest.mark.parametrize("block_size", [-3, 0, 1])
def test_a_block_that_drafts_nothing_is_refused_at_once(block_size, toy_target):
    with pytest.raises(ValueError, match=f"block_size counts the anchor, .* at least 2, got {block_size}"):
        toy_module(toy_target, block_size=block_size)


# --- learning


@pytest.mark.parametrize(
    "objective", [CrossEntropy(), *slow(DPace(), Distillation())], ids=lambda o: type(o).__name__
)
def test_every_objective_learns(objective, tmp_path, toy_target):
    two = make_store(tmp_path, toy_target, [24, 30])
    settings = {"module": {"objective": objective, "lr": 1e-2}, "max_epochs": 20, "logging": False}
    losses = [step["train/loss"] for step in fit(tmp_path / "run", toy_target, two, **settings)["steps"]]
    assert min(losses[-5:]) < 0.8 * losses[0]


@pytest.mark.slow
def test_bf16_keeps_fp32_masters_and_learns(tmp_path, toy_target):
    two = make_store(tmp_path, toy_target, [24, 30])
    settings = {"module": {"lr": 1e-2}, "max_epochs": 20, "logging": False, "precision": "bf16-mixed"}
    ours = fit(tmp_path / "run", toy_target, two, **settings)
    losses = [step["train/loss"] for step in ours["steps"]]
    assert min(losses[-5:]) < 0.8 * losses[0]
    moments = [value for entry in ours["moments"].values() for value in entry.values()]
    assert {value.dtype for value in (*ours["weights"].values(), *moments)} == {torch.float32}


# --- stops at awkward places


def assert_the_rest_is_equal(rest, whole, *, behind):
    assert rest["steps"] == whole["steps"][behind:]
    assert rest["position"] == whole["position"]
    for name, value in whole["weights"].items():
        assert torch.equal(rest["weights"][name], value), name


BY_STEPS = {"max_steps": 10, "max_epochs": -1, "log_every_n_steps": 3, "keep": True}
BY_COUNT = {"val_check_interval": 4, "check_val_every_n_epoch": None, "keep": True, "log_every_n_steps": 1}


@pytest.fixture(scope="module")
def limited(tmp_path_factory, toy_target, store):
    root = tmp_path_factory.mktemp("limited")
    return root, fit(root, toy_target, store, **BY_STEPS)


@pytest.fixture(scope="module")
def counted(tmp_path_factory, toy_target, store):
    root = tmp_path_factory.mktemp("counted")
    return root, fit(root, toy_target, store, **BY_COUNT)


@pytest.mark.parametrize("step", [3, 6, 8])
def test_a_run_limited_by_steps_resumes_exactly(step, limited, tmp_path, toy_target, store):
    """With max_steps set Lightning takes every run for a restarted one."""
    root, whole = limited
    assert whole["global_step"] == 10
    rest = fit(tmp_path, toy_target, store, resume=str(root / "kept" / f"step={step}.ckpt"), **BY_STEPS)
    assert_the_rest_is_equal(rest, whole, behind=step)
    assert rest["rows"] == rows_behind(whole, step)
    assert whole["steps"][-1]["lr"] < 0.2 * max(
        s["lr"] for s in whole["steps"]
    )  # the cosine comes to its end


def rows_behind(whole, step):
    """What is logged from the checkpoint of `step` on: a validation of that very step comes behind it."""
    return [
        r for r in whole["rows"] if int(r["step"]) >= step or (int(r["step"]) == step - 1 and "val/tau" in r)
    ]


@pytest.mark.parametrize("step", [2, *slow(1, 6, 7)])
def test_validation_by_a_count_of_batches_comes_at_the_same_steps(step, counted, tmp_path, toy_target, store):
    root, whole = counted
    assert [int(row["step"]) for row in whole["rows"] if "val/tau" in row] == [1, 3, 5, 7, 9, 11]
    rest = fit(tmp_path, toy_target, store, resume=str(root / "kept" / f"step={step}.ckpt"), **BY_COUNT)
    assert_the_rest_is_equal(rest, whole, behind=step)
    assert rest["rows"] == rows_behind(whole, step)


@pytest.mark.slow
def test_a_sanity_check_is_no_validation(tmp_path, toy_target, store):
    """Resumed at the end of an epoch, the epoch's validation still runs."""
    settings = {"keep": True, "num_sanity_val_steps": 1}
    whole = fit(tmp_path / "whole", toy_target, store, **settings)
    kept = str(tmp_path / "whole" / "kept" / "step=6.ckpt")
    rest = fit(tmp_path / "rest", toy_target, store, resume=kept, **settings)
    assert jobs.logged(rest["rows"], "val/tau") == jobs.logged(whole["rows"], "val/tau")


class SaveInside(Checkpoint):
    """Saves between two optimizer steps, as a timer would."""

    def __init__(self, path, micro_batch):
        self.path = path
        self.left = micro_batch

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.left -= 1
        if self.left == 0:
            trainer.save_checkpoint(self.path)


def test_a_checkpoint_inside_a_window_goes_on_from_its_start(tmp_path, toy_target, store):
    recorder, path = Recorder(), tmp_path / "inside.ckpt"
    trainer = toy_trainer(
        tmp_path / "whole", callbacks=[recorder, SaveInside(path, 7)], enable_checkpointing=True
    )
    module, data = toy_module(toy_target), toy_data(store)
    trainer.fit(module, data)
    assert torch.load(path, weights_only=True)["dflash"]["unaligned"] == 1
    again = Recorder()
    resumed = toy_trainer(
        tmp_path / "rest", callbacks=[again, SaveInside(path, 99)], enable_checkpointing=True
    )
    other = toy_module(toy_target)
    resumed.fit(other, toy_data(store), ckpt_path=path)
    assert again.batches == recorder.batches[6:]
    assert again.steps == recorder.steps[3:]
    for name, value in module.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name


class StopBehind(Callback):
    """Ends the run behind one epoch, with the schedule of all of them."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_train_epoch_end(self, trainer, pl_module):
        trainer.should_stop = trainer.current_epoch == self.epoch


@pytest.mark.slow
def test_lightnings_own_checkpoints_resume_exactly(tmp_path, toy_target, store):
    """Best by val/tau and last.ckpt, saved behind a validation, which is not run again."""

    def run(name, folder, *, stop=None, resume=None):
        recorder, module = Recorder(), toy_module(toy_target)
        kept = ModelCheckpoint(
            dirpath=tmp_path / folder, monitor="val/tau", mode="max", save_last=True, save_top_k=-1
        )
        options = {"max_epochs": 3, "log_every_n_steps": 1, "enable_checkpointing": True}
        trainer = toy_trainer(tmp_path / name, callbacks=[recorder, kept, StopBehind(stop)], **options)
        trainer.fit(module, toy_data(store), ckpt_path=resume)
        return recorder.steps, read_rows(tmp_path / name / "logs" / "version_0"), module.state_dict(), kept

    steps, rows, weights, kept = run("whole", "kept")
    first_steps, first_rows, *_ = run("first", "half", stop=1)
    rest_steps, rest_rows, rest_weights, again = run(
        "rest", "half", stop=1, resume=tmp_path / "half" / "last.ckpt"
    )
    assert len(first_steps) == 12
    assert first_steps + rest_steps == steps
    assert first_rows + rest_rows == rows
    assert again.best_model_score == kept.best_model_score
    assert all(torch.equal(rest_weights[name], value) for name, value in weights.items())


def test_early_stopping_by_tau_ends_behind_a_validation(tmp_path, toy_target, store):
    stopping = EarlyStopping(monitor="val/tau", mode="max", patience=1, min_delta=100.0)
    recorder = Recorder()
    trainer = toy_trainer(tmp_path, callbacks=[stopping, recorder], max_epochs=9)
    data = toy_data(store)
    trainer.fit(toy_module(toy_target), data)
    assert trainer.current_epoch == 2
    assert data.position.steps == trainer.global_step == len(recorder.steps) == 12
