"""The pipeline in a run: nothing shows but that states are there sooner. Two ranks: tests/ranks."""

import weakref

import pytest
import torch
from lightning import Callback

from dflash_lightning.objective.kinds import Distillation
from dflash_lightning.target.dispatch import PrefetchPolicy
from tests.ranks.jobs import Recorder
from tests.runs import toy_data, toy_module, toy_trainer
from tests.training.prefetch.prefetch_runs import SETTINGS, assert_equal_runs, fit, prefetch_threads
from tests.training.prefetch.prefetch_runs import no_thread_is_left as no_thread_is_left

# --- in order


@pytest.mark.parametrize(
    ("devices", "policy"),
    [
        pytest.param(0, PrefetchPolicy(depth=2), id="the drafter's device", marks=pytest.mark.slow),
        pytest.param(1, None, id="defaults", marks=pytest.mark.slow),
        pytest.param(2, PrefetchPolicy(depth=1, dispatch="least_loaded"), id="two devices"),
        pytest.param(3, PrefetchPolicy(depth=3), id="three devices", marks=pytest.mark.slow),
        pytest.param(3, PrefetchPolicy(memory_bytes=1), id="every batch alone", marks=pytest.mark.slow),
    ],
)
def test_in_order_is_bit_identical_to_no_pipeline(
    devices, policy, inline, tmp_path, toy_target, prefetch_store
):
    ours = fit(tmp_path, toy_target, prefetch_store, devices=devices, policy=policy, **SETTINGS)
    assert_equal_runs(ours, inline[1])
    assert ours["rows"] == inline[1]["rows"]


@pytest.mark.parametrize("step", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_in_order_goes_on_from_a_stop(step, inline, tmp_path, toy_target, prefetch_store):
    """From a checkpoint of a run without a pipeline, in the middle of an epoch and at its end."""
    checkpoint = str(inline[0] / "kept" / f"step={step}.ckpt")
    ours = fit(tmp_path, toy_target, prefetch_store, devices=2, resume=checkpoint, **SETTINGS)
    assert_equal_runs(ours, inline[1], behind=step)


@pytest.mark.slow
def test_a_run_with_a_pipeline_leaves_the_same_checkpoints(inline, tmp_path, toy_target, prefetch_store):
    fit(tmp_path, toy_target, prefetch_store, devices=2, **SETTINGS)
    theirs, ours = (
        torch.load(root / "kept" / "step=5.ckpt", weights_only=True) for root in (inline[0], tmp_path)
    )
    assert ours["DFlashDataModule"] == theirs["DFlashDataModule"]
    assert ours["loops"] == theirs["loops"]


@pytest.mark.slow
def test_states_of_the_final_norm_come_along(tmp_path, toy_target, prefetch_store):
    settings = {"module": {"objective": Distillation()}, "max_epochs": 1}
    plain = fit(tmp_path / "plain", toy_target, prefetch_store, **settings)
    ours = fit(tmp_path / "ours", toy_target, prefetch_store, devices=2, **settings)
    assert_equal_runs(ours, plain)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*persistent_workers.*")  # a loader lives for one epoch: nothing to keep
def test_loader_workers_feed_the_pipeline(inline, tmp_path, toy_target, prefetch_store):
    ours = fit(tmp_path, toy_target, prefetch_store, devices=2, data={"num_workers": 2}, **SETTINGS)
    assert_equal_runs(ours, inline[1])


# --- set-up


class Lengths(Callback):
    def on_train_epoch_start(self, trainer, pl_module):
        loader = trainer.train_dataloader
        assert len(loader) == trainer.num_training_batches == len(loader.sampler)
        for _ in range(2):
            iter(loader)  # an iterator that nobody asks for a batch starts nothing
        assert not prefetch_threads()


@pytest.mark.slow
def test_lightning_sees_the_loader_it_would_see_without(tmp_path, toy_target, prefetch_store):
    trainer = toy_trainer(tmp_path, callbacks=[Lengths()])
    trainer.fit(toy_module(toy_target, target_devices=2), toy_data(prefetch_store))


class Alive(Callback):
    """Whether a step's states are still there when the step is over."""

    def __init__(self):
        self.states = None
        self.at_validation = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.states = weakref.ref(batch[1])

    def on_validation_start(self, trainer, pl_module):
        self.at_validation.append(self.states() is not None)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [0, 2])
def test_no_states_are_kept_for_validation(devices, tmp_path, toy_target, prefetch_store):
    alive = Alive()
    trainer = toy_trainer(tmp_path, callbacks=[alive], max_epochs=1)
    trainer.fit(toy_module(toy_target, target_devices=devices), toy_data(prefetch_store))
    assert alive.at_validation == [False]


class Balance(Callback):
    """What a callback may do: replace the policy before there is a pipeline, and on the way."""

    def setup(self, trainer, pl_module, stage):
        pl_module.set_prefetch(PrefetchPolicy(dispatch="least_loaded", depth=1))

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        assert pl_module.pipeline.policy.dispatch == "least_loaded"
        if batch_idx == 1:
            pl_module.pipeline.set_depth(4)


def test_a_callback_owns_the_policy(inline, tmp_path, toy_target, prefetch_store):
    recorder = Recorder()
    trainer = toy_trainer(tmp_path, callbacks=[Balance(), recorder])
    module = toy_module(toy_target, target_devices=2)
    trainer.fit(module, toy_data(prefetch_store))
    assert recorder.batches == inline[1]["batches"]
    assert module.pipeline.policy == PrefetchPolicy(dispatch="least_loaded", depth=4)


def test_a_cpu_alone_runs_inline(tmp_path, toy_target, prefetch_store):
    module = toy_module(toy_target)
    toy_trainer(tmp_path, max_steps=1).fit(module, toy_data(prefetch_store))
    assert module.pipeline is None


def test_target_devices_that_nothing_would_use_are_refused(tmp_path, toy_target, prefetch_store):
    policy = PrefetchPolicy(depth=0)
    with pytest.raises(ValueError, match=r"target_devices is 2, but model\.prefetch\.depth 0 is no pipeline"):
        fit(tmp_path, toy_target, prefetch_store, devices=2, policy=policy, **SETTINGS)
