"""However a run ends, no thread is left, and what a target raised is known."""

import multiprocessing

import pytest
from lightning import Callback

from tests.runs import toy_data, toy_module, toy_trainer
from tests.training.prefetch.prefetch_runs import SETTINGS, prefetch_threads
from tests.training.prefetch.prefetch_runs import no_thread_is_left as no_thread_is_left


class Fail(Callback):
    def __init__(self, where):
        self.where = where

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if self.where == "training" and batch_idx == 2:
            raise ArithmeticError("stop here")

    def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx=0):
        if self.where == "validation":
            raise ArithmeticError("stop here")


@pytest.mark.parametrize("where", ["training", "validation"])
def test_a_run_that_fails_leaves_no_thread(where, tmp_path, toy_target, prefetch_store):
    options = {name: SETTINGS[name] for name in ("val_check_interval", "check_val_every_n_epoch")}
    trainer = toy_trainer(tmp_path, callbacks=[Fail(where)], **options)
    module = toy_module(toy_target, target_devices=2)
    with pytest.raises(ArithmeticError, match="stop here"):
        trainer.fit(module, toy_data(prefetch_store))
    assert not prefetch_threads()


def test_a_run_ended_by_max_steps_leaves_no_thread(tmp_path, toy_target, prefetch_store):
    module = toy_module(toy_target, target_devices=2)
    trainer = toy_trainer(tmp_path, max_steps=2)
    trainer.fit(module, toy_data(prefetch_store))
    assert not prefetch_threads()
    assert module.pipeline.counters().delivered == 4
    assert module.data.position.steps == 2  # what was prefetched beyond counts for nothing


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*persistent_workers.*")
def test_the_loaders_workers_end_with_it(tmp_path, toy_target, prefetch_store):
    trainer = toy_trainer(tmp_path, max_steps=2)
    data = toy_data(prefetch_store, num_workers=2)
    trainer.fit(toy_module(toy_target, target_devices=1), data)
    assert not multiprocessing.active_children()


def test_one_module_can_be_fitted_twice(tmp_path, toy_target, prefetch_store):
    module, data = toy_module(toy_target, target_devices=2), toy_data(prefetch_store)
    toy_trainer(tmp_path / "a", max_epochs=1).fit(module, data)
    once = module.pipeline.counters().delivered
    data = toy_data(prefetch_store)
    toy_trainer(tmp_path / "b", max_epochs=1).fit(module, data)
    assert module.pipeline.counters().delivered == 2 * once


class Broken(Callback):
    """The target fails at its fifth batch."""

    def on_fit_start(self, trainer, pl_module):
        calls = iter(range(100))
        worker = pl_module.pipeline._workers[0]

        def broken(batch):
            if next(calls) == 4:
                raise FloatingPointError("the target broke")
            return worker(batch)

        pl_module.pipeline._workers = [broken]


def test_what_a_target_raises_ends_the_run(tmp_path, toy_target, prefetch_store):
    trainer = toy_trainer(tmp_path, callbacks=[Broken()])
    with pytest.raises(FloatingPointError, match="the target broke") as caught:
        trainer.fit(toy_module(toy_target, target_devices=1), toy_data(prefetch_store))
    notes = " ".join(caught.value.__notes__)
    assert "target 0 on cpu, batch 4 of this pass, bucket" in notes
