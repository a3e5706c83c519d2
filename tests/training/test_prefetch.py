"""The pipeline in a run: nothing shows but that states are there sooner. Two ranks: tests/ranks."""

import threading
import weakref
from collections import Counter

import numpy as np
import pytest
import torch
from lightning import Callback

from dflash_lightning.objective.kinds import Distillation
from dflash_lightning.target.dispatch import PrefetchPolicy
from tests.ranks import jobs
from tests.ranks.jobs import Recorder
from tests.runs import make_store, toy_data, toy_module, toy_trainer

LENGTHS = np.random.default_rng(5).integers(6, 33, 44).tolist()
HELD_OUT = [10, 30, 20]


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=HELD_OUT)


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert not prefetch_threads()


def prefetch_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def fit(root, target, store, *, devices=0, policy=None, **options):
    module = {**options.pop("module", {}), "target_devices": devices, "prefetch": policy}
    return jobs.fit(str(root), str(target), str(store), module=module, **options)


SETTINGS = {"keep": True, "log_every_n_steps": 3, "val_check_interval": 6, "check_val_every_n_epoch": None}
"""Validation comes in the middle of an epoch, while the target runs ahead."""


@pytest.fixture(scope="module")
def inline(tmp_path_factory, toy_target, store):
    root = tmp_path_factory.mktemp("inline")
    return root, fit(root, toy_target, store, **SETTINGS)


def assert_equal_runs(ours, theirs, *, behind=0):
    assert ours["steps"] == theirs["steps"][behind:]
    assert ours["batches"] == theirs["batches"][len(theirs["batches"]) - len(ours["batches"]) :]
    assert ours["position"] == theirs["position"]
    for name, value in theirs["weights"].items():
        assert torch.equal(ours["weights"][name], value), name


# --- in order


@pytest.mark.parametrize(
    ("devices", "policy"),
    [
        (0, PrefetchPolicy(depth=2)),
        (1, None),
        (2, PrefetchPolicy(depth=1, dispatch="least_loaded")),
        (3, PrefetchPolicy(depth=3)),
        (3, PrefetchPolicy(depth=2, memory_bytes=1)),  # every batch runs alone
    ],
    ids=["shared device", "default", "two", "three", "no memory"],
)
def test_in_order_is_bit_identical_to_no_pipeline(devices, policy, inline, tmp_path, toy_target, store):
    ours = fit(tmp_path, toy_target, store, devices=devices, policy=policy, **SETTINGS)
    assert_equal_runs(ours, inline[1])
    assert ours["rows"] == inline[1]["rows"]


@pytest.mark.parametrize("step", [3, 6])
def test_in_order_goes_on_from_a_stop(step, inline, tmp_path, toy_target, store):
    """From a checkpoint of a run without a pipeline, in the middle of an epoch and at its end."""
    checkpoint = str(inline[0] / "kept" / f"step={step}.ckpt")
    ours = fit(tmp_path, toy_target, store, devices=2, resume=checkpoint, **SETTINGS)
    assert_equal_runs(ours, inline[1], behind=step)


def test_a_run_with_a_pipeline_leaves_the_same_checkpoints(inline, tmp_path, toy_target, store):
    fit(tmp_path, toy_target, store, devices=2, **SETTINGS)
    theirs, ours = (
        torch.load(root / "kept" / "step=5.ckpt", weights_only=True) for root in (inline[0], tmp_path)
    )
    assert ours["DFlashDataModule"] == theirs["DFlashDataModule"]
    assert ours["loops"] == theirs["loops"]


def test_states_of_the_final_norm_come_along(tmp_path, toy_target, store):
    settings = {"module": {"objective": Distillation()}, "max_epochs": 1}
    plain = fit(tmp_path / "plain", toy_target, store, **settings)
    ours = fit(tmp_path / "ours", toy_target, store, devices=2, **settings)
    assert_equal_runs(ours, plain)


@pytest.mark.slow
def test_loader_workers_feed_the_pipeline(inline, tmp_path, toy_target, store):
    ours = fit(tmp_path, toy_target, store, devices=2, data={"num_workers": 2}, **SETTINGS)
    assert_equal_runs(ours, inline[1])


# --- ready first


READY = PrefetchPolicy(delivery="ready_first", depth=3)


def windows(batches, accumulate=2):
    """Sample ids of each optimizer step, whatever the order inside."""
    return [
        sorted(i for batch in batches[at : at + accumulate] for i in batch["ids"])
        for at in range(0, len(batches), accumulate)
    ]


def test_ready_first_trains_the_same_windows(inline, tmp_path, toy_target, store):
    ours = fit(tmp_path, toy_target, store, devices=3, policy=READY, **SETTINGS)
    whole = [batch for batch in inline[1]["batches"] if batch["epoch"] == 0]
    epoch = [batch for batch in ours["batches"] if batch["epoch"] == 0]
    assert windows(epoch) == windows(whole)
    assert ours["position"] == inline[1]["position"]
    for name, value in inline[1]["weights"].items():
        torch.testing.assert_close(ours["weights"][name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("step", [1, 4])
def test_ready_first_gives_every_sample_once_through_a_stop(step, tmp_path, toy_target, store):
    settings = {"devices": 3, "policy": READY, "keep": True}
    before = fit(tmp_path / "a", toy_target, store, max_steps=step, **settings)
    checkpoint = str(tmp_path / "a" / "kept" / f"step={step}.ckpt")
    after = fit(tmp_path / "b", toy_target, store, resume=checkpoint, **settings)
    seen = Counter(
        i for b in (*before["batches"], *after["batches"]) if b["epoch"] == 0 for i in b["ids"] if i >= 0
    )
    assert seen == Counter(range(len(LENGTHS)))


class LateFirst(Callback):
    """The first micro-batch of a window of two is ready only when the second one is being trained."""

    def __init__(self):
        self.second = threading.Event()

    def on_fit_start(self, trainer, pl_module):
        slow, fast = pl_module.pipeline._workers

        def wait(batch):
            assert self.second.wait(60)
            self.second.clear()
            return slow(batch)

        pl_module.pipeline._workers = [wait, fast]

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if pl_module.place_in_window == 1:
            self.second.set()

    def on_train_end(self, trainer, pl_module):
        self.second.set()


def test_micro_batches_out_of_turn_are_told_by_their_own_names(tmp_path, toy_target, store):
    """Their buckets and samples are looked up in the plan's window."""
    from dflash_lightning.callbacks.micro_batches import MicroBatches

    recorder = Recorder()
    trainer = toy_trainer(tmp_path, callbacks=[MicroBatches(), recorder, LateFirst()], max_steps=3)
    policy = PrefetchPolicy(delivery="ready_first", depth=1)
    module = toy_module(toy_target, target_devices=2, prefetch=policy)
    trainer.fit(module, toy_data(store))
    lines = jobs.read_lines(tmp_path / "micro_batches.rank0.jsonl")
    trained = [(batch["bucket"], len(batch["ids"]), batch["padded_length"]) for batch in recorder.batches]
    told = [(line["bucket"], line["samples"], line["seq_len"]) for line in lines]
    assert told == [trained[i] for pair in zip(range(1, 6, 2), range(0, 6, 2), strict=True) for i in pair]
    assert [line["micro_step"] for line in lines] == [0, 1] * 3
    assert all(a["time"] >= b["time"] for a, b in zip(lines[::2], lines[1::2], strict=True))


# --- the end


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
def test_a_run_that_fails_leaves_no_thread(where, tmp_path, toy_target, store):
    options = {name: SETTINGS[name] for name in ("val_check_interval", "check_val_every_n_epoch")}
    trainer = toy_trainer(tmp_path, callbacks=[Fail(where)], **options)
    module = toy_module(toy_target, target_devices=2)
    with pytest.raises(ArithmeticError, match="stop here"):
        trainer.fit(module, toy_data(store))
    assert not prefetch_threads()


def test_a_run_ended_by_max_steps_leaves_no_thread(tmp_path, toy_target, store):
    module = toy_module(toy_target, target_devices=2)
    trainer = toy_trainer(tmp_path, max_steps=2)
    trainer.fit(module, toy_data(store))
    assert not prefetch_threads()
    assert module.pipeline.counters().delivered == 4
    assert module.data.position.steps == 2  # what was prefetched beyond counts for nothing


def test_one_module_can_be_fitted_twice(tmp_path, toy_target, store):
    module, data = toy_module(toy_target, target_devices=2), toy_data(store)
    toy_trainer(tmp_path / "a", max_epochs=1).fit(module, data)
    once = module.pipeline.counters().delivered
    data = toy_data(store)
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


def test_what_a_target_raises_ends_the_run(tmp_path, toy_target, store):
    trainer = toy_trainer(tmp_path, callbacks=[Broken()])
    with pytest.raises(FloatingPointError, match="the target broke") as caught:
        trainer.fit(toy_module(toy_target, target_devices=1), toy_data(store))
    notes = " ".join(caught.value.__notes__)
    assert "target 0 on cpu, batch 4 of this pass, bucket" in notes


# --- set-up


class Lengths(Callback):
    def on_train_epoch_start(self, trainer, pl_module):
        loader = trainer.train_dataloader
        assert len(loader) == trainer.num_training_batches == len(loader.sampler)
        for _ in range(2):
            iter(loader)  # an iterator that nobody asks for a batch starts nothing
        assert not prefetch_threads()


def test_lightning_sees_the_loader_it_would_see_without(tmp_path, toy_target, store):
    trainer = toy_trainer(tmp_path, callbacks=[Lengths()])
    trainer.fit(toy_module(toy_target, target_devices=2), toy_data(store))


class Alive(Callback):
    """Whether a step's states are still there when the step is over."""

    def __init__(self):
        self.states = None
        self.at_validation = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.states = weakref.ref(batch[1])

    def on_validation_start(self, trainer, pl_module):
        self.at_validation.append(self.states() is not None)


@pytest.mark.parametrize("devices", [0, 2])
def test_no_states_are_kept_for_validation(devices, tmp_path, toy_target, store):
    alive = Alive()
    trainer = toy_trainer(tmp_path, callbacks=[alive], max_epochs=1)
    trainer.fit(toy_module(toy_target, target_devices=devices), toy_data(store))
    assert alive.at_validation == [False]


class Balance(Callback):
    """What a callback may do: replace the policy before there is a pipeline, and on the way."""

    def setup(self, trainer, pl_module, stage):
        pl_module.set_prefetch(PrefetchPolicy(dispatch="least_loaded", depth=1))

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        assert pl_module.pipeline.policy.dispatch == "least_loaded"
        if batch_idx == 1:
            pl_module.pipeline.set_depth(4)


def test_a_callback_owns_the_policy(inline, tmp_path, toy_target, store):
    recorder = Recorder()
    trainer = toy_trainer(tmp_path, callbacks=[Balance(), recorder])
    module = toy_module(toy_target, target_devices=2)
    trainer.fit(module, toy_data(store))
    assert recorder.batches == inline[1]["batches"]
    assert module.pipeline.policy == PrefetchPolicy(dispatch="least_loaded", depth=4)


def test_a_cpu_alone_runs_inline(tmp_path, toy_target, store):
    module = toy_module(toy_target)
    toy_trainer(tmp_path, max_steps=1).fit(module, toy_data(store))
    assert module.pipeline is None
