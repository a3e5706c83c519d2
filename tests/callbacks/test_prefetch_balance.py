"""PrefetchBalance in real runs with three target devices, CPUs in their place."""

import time

import numpy as np
import pytest
import torch
from lightning import Callback

from dflash_lightning.callbacks.prefetch_balance import PrefetchBalance
from dflash_lightning.target.balance.slow_rank import SlowRule
from dflash_lightning.target.dispatch import PrefetchPolicy
from tests.ranks import jobs
from tests.runs import PLAN, toy_data, toy_module, toy_trainer
from tests.target.balance.intervals import interval
from tests.training.prefetch.test_stored_states import write

# What a real run advises depends on how busy this machine is. Tests of advice make up what the watch sees.
pytestmark = pytest.mark.filterwarnings("ignore:.*bottleneck")

DEVICES = 3
BATCHES = 12
"""Of an epoch."""


class SlowFirst(Callback):
    """The first target device gives its states when all are as far ahead as they may, or all batches of the
    epoch are dealt. Keeps the counters."""

    def on_fit_start(self, trainer, pl_module):
        pipeline = pl_module.pipeline
        first, *others = pipeline._workers

        def slow(batch):
            while not self._done_elsewhere(pipeline):
                time.sleep(0.001)
            return first(batch)

        pipeline._workers = [slow, *others]

    def _done_elsewhere(self, pipeline):
        devices = pipeline.counters().devices
        full = sum(device.queued_batches for device in devices) >= DEVICES * pipeline.policy.depth
        return full or sum(device.total for device in devices) % BATCHES == 0

    def on_train_end(self, trainer, pl_module):
        self.policy = pl_module.pipeline.policy
        self.counters = pl_module.pipeline.counters()


def fit(root, target, store, *callbacks, devices=DEVICES, prefetch=None, hidden_states=None, **options):
    module = {"target_devices": devices, "prefetch": prefetch, "hidden_states": hidden_states}
    return jobs.fit(str(root), str(target), str(store), module=module, extra=list(callbacks), **options)


@pytest.fixture(scope="module")
def balanced(tmp_path_factory, toy_target, observed_store):
    """(folder, results, the pipeline's counters) of two epochs with the callback, a log every other step."""
    root, slow = tmp_path_factory.mktemp("balanced"), SlowFirst()
    balance = PrefetchBalance(depth=4, min_depth=4, max_depth=5)  # an epoch may be ahead
    found = fit(root, toy_target, observed_store, balance, slow, keep=True, log_every_n_steps=2)
    return root, found, slow


def rows_of(found):
    rows = [row for row in found["rows"] if "prefetch/depth" in row]
    return [{n: float(v) for n, v in row.items() if n.startswith("prefetch/")} for row in rows]


def test_every_log_has_every_name(balanced):
    rows, buckets = rows_of(balanced[1]), len(PLAN.edges)
    assert len(rows) == balanced[1]["global_step"] // 2 >= 4
    names = {
        *(f"queue_depth_{i}" for i in range(DEVICES)),
        *(f"dispatched_device_{i}_pct" for i in range(DEVICES)),
        *(f"dispatched_bucket_{i}_pct" for i in range(buckets)),
        *("depth", "queue_depth", "imbalance", "wait_s", "wait_pct"),
        *("tokens_in_flight", "gib_in_flight", "peak_gib"),
    }
    seen = {name for row in rows for name in row}
    assert seen == {f"prefetch/{name}" for name in names}


def test_the_values_of_a_log_belong_together(balanced):
    for row in rows_of(balanced[1]):
        depths = [row[f"prefetch/queue_depth_{i}"] for i in range(DEVICES)]
        assert row["prefetch/queue_depth"] == pytest.approx(sum(depths), rel=1e-4)
        assert sum(depths) <= DEVICES * row["prefetch/depth"]
        for kind, count in (("device", DEVICES), ("bucket", len(PLAN.edges))):
            whole = sum(row[f"prefetch/dispatched_{kind}_{i}_pct"] for i in range(count))
            assert whole == pytest.approx(100, rel=1e-4) or np.isnan(whole)  # the end of an epoch
        assert 0 <= row["prefetch/wait_pct"] <= 100
        assert row["prefetch/peak_gib"] >= row["prefetch/gib_in_flight"]
        assert 4 <= row["prefetch/depth"] <= 5


def test_it_changes_who_computes_what(balanced, tmp_path, toy_target, observed_store):
    """The least loaded gets the batches, where the plain policy deals them by turns."""
    plain = SlowFirst()
    fit(tmp_path, toy_target, observed_store, plain)
    counts = [device.total for device in plain.counters.devices]
    assert plain.policy == PrefetchPolicy()
    assert max(counts) - min(counts) <= 1
    slow, *others = [device.total for device in balanced[2].counters.devices]
    assert balanced[2].policy.dispatch == "least_loaded"
    assert slow + sum(others) == sum(counts) == 2 * BATCHES
    assert slow <= 2 * 2  # in each epoch one that it is at, and one behind that


@pytest.mark.slow
def test_training_in_order_is_the_same_with_it_and_without(tmp_path, toy_target, observed_store):
    balance = PrefetchBalance(delivery="in_order")
    ours = fit(tmp_path / "with", toy_target, observed_store, balance, max_epochs=1)
    theirs = jobs.fit(str(tmp_path / "without"), str(toy_target), observed_store, max_epochs=1)
    assert ours["steps"] == theirs["steps"]
    assert all(torch.equal(ours["weights"][n], value) for n, value in theirs["weights"].items())


@pytest.mark.slow
def test_a_resumed_run_goes_on_at_the_depth_that_was_found(balanced, tmp_path, toy_target, observed_store):
    kept = balanced[0] / "kept" / "step=4.ckpt"
    checkpoint = torch.load(kept, weights_only=True)
    (name,) = [name for name in checkpoint["callbacks"] if name.startswith("PrefetchBalance")]
    checkpoint["callbacks"][name]["found"]["depth"] = 5
    torch.save(checkpoint, tmp_path / "deeper.ckpt")
    for depth, begins in ((4, 5), (3, 3)):  # a new setting wins over what was found
        balance = PrefetchBalance(depth=depth, min_depth=2, max_depth=6)
        found = fit(
            tmp_path / str(depth),
            toy_target,
            observed_store,
            balance,
            resume=str(tmp_path / "deeper.ckpt"),
            log_every_n_steps=1,
        )
        assert rows_of(found)[0]["prefetch/depth"] == begins


def test_a_run_without_a_pipeline_says_so_and_logs_nothing(tmp_path, toy_target, observed_store, said):
    prefetch = PrefetchPolicy(depth=0)
    found = fit(
        tmp_path, toy_target, observed_store, PrefetchBalance(), devices=0, prefetch=prefetch, max_epochs=1
    )
    assert len(said.beginning("PrefetchBalance: the target runs inside the step")) == 1
    assert rows_of(found) == []


def test_it_brings_a_pipeline_to_a_target_on_the_drafters_device(tmp_path, toy_target, observed_store):
    found = fit(tmp_path, toy_target, observed_store, PrefetchBalance(), devices=0, max_epochs=1)
    assert {row["prefetch/imbalance"] for row in rows_of(found) if "prefetch/imbalance" in row} == {1.0}


def test_validation_is_no_time_of_training(tmp_path, toy_target, observed_store):
    """Else a long one would make waits look short."""

    class SlowValidation(Callback):
        seconds = 0.0

        def on_validation_batch_start(self, *_):
            time.sleep(0.2)
            self.seconds += 0.2

    class Times(Callback):
        def on_train_start(self, *_):
            self.begun = time.perf_counter()

        def on_train_batch_end(self, trainer, pl_module, *_):
            if pl_module.step_finished:
                self.passed = time.perf_counter() - self.begun - slow.seconds
                self.counted = balance._sums._own["seconds"]

    times, balance, slow = Times(), PrefetchBalance(), SlowValidation()
    trainer = toy_trainer(
        tmp_path,
        callbacks=[times, balance, slow],
        max_epochs=1,
        log_every_n_steps=1000,
        val_check_interval=4,
        check_val_every_n_epoch=None,
    )
    trainer.fit(toy_module(toy_target, target_devices=1), toy_data(observed_store))
    assert slow.seconds >= 0.6
    assert 0 < times.counted <= times.passed


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("own devices", "the bottleneck is the target: a batch takes"),
        ("drafter's device", "the bottleneck is the target, which shares the drafter's device"),
        ("disk", "the bottleneck is reading hidden states"),
    ],
)
def test_the_bottleneck_is_told_by_where_states_come_from(where, words, tmp_path, toy_target, observed_store):
    """A real run begins the watch; what it then sees is made up."""
    options = {"devices": 1 if where == "own devices" else 0, "max_epochs": 1}
    if where == "disk":
        options["hidden_states"] = write(tmp_path / "states", toy_target, observed_store)
    balance = PrefetchBalance(slow_rank=SlowRule(patience=1))
    fit(tmp_path / "run", toy_target, observed_store, balance, **options)
    slow = interval(wait=3.0, busy=(10.0,))
    told = [line for _ in range(6) for line in balance._watch.look(slow, lambda row: [row])[1]]
    assert words in told[-1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory_gib": 0.0}, "PrefetchBalance.memory_gib must be above 0 GiB, got 0.0; null leaves depth"),
        ({"depth": 9}, "depth must be between min_depth 1 and max_depth 8, got 9"),
        ({"depth": 1, "min_depth": 2}, "depth must be between min_depth 2 and max_depth 8, got 1"),
        ({"min_depth": 0}, "1 <= min_depth <= max_depth, got 0 and 8"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PrefetchBalance(**settings)
