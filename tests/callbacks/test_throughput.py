"""Throughput against a recount of tokens, and against what really takes time."""

import time
from pathlib import Path

import pytest
from lightning import Callback
from lightning.pytorch.plugins import TorchCheckpointIO

from dflash_lightning.callbacks.throughput import Throughput
from dflash_lightning.data.collate import BatchDataset
from dflash_lightning.training.watch.step_clock import STAGES
from tests.callbacks.conftest import EVERY
from tests.callbacks.recount_lines import by_step
from tests.ranks import jobs
from tests.runs import toy_data, toy_module, toy_trainer

NAP = 0.05


def logged_rows(rows):
    return [{name: float(v) for name, v in row.items()} for row in rows if "throughput/step_s" in row]


def test_rates_are_tokens_and_samples_over_the_time_of_all_steps(observed):
    steps = by_step([observed[1]["micro"]])
    rows = logged_rows(observed[1]["rows"])
    assert len(rows) == len(steps) // EVERY
    for row in rows:
        upto = int(row["train/step"])
        lines = [line for step in range(upto - EVERY + 1, upto + 1) for line in steps[step]]
        seconds = EVERY * row["throughput/step_s"]
        counts = {
            "tokens_per_s": sum(line["tokens"] for line in lines),
            "padded_tokens_per_s": sum(line["samples"] * line["seq_len"] for line in lines),
            "samples_per_s": sum(line["samples"] for line in lines),
        }
        ours = {name: row[f"throughput/{name}"] * seconds for name in counts}
        assert ours == pytest.approx(counts, rel=1e-4)


def test_shares_sum_to_a_hundred_and_each_stage_has_some(observed):
    rows = logged_rows(observed[1]["rows"])
    for row in rows:
        shares = [row[f"time/{stage}_pct"] for stage in STAGES]
        assert sum(shares) == pytest.approx(100, rel=1e-4)
        assert min(shares) >= 0
        assert 0.05 < row["memory/host_gib"] < 100
        assert row["memory/device_gib"] == 0
    first = rows[0]
    assert all(first[f"time/{stage}_pct"] > 0 for stage in STAGES)  # a checkpoint behind each step, too
    assert first["time/drafter_pct"] > first["time/data_pct"]


class SlowDisk(TorchCheckpointIO):
    """Takes its time."""

    def save_checkpoint(self, *args, **options):
        time.sleep(NAP)
        super().save_checkpoint(*args, **options)


class SlowValidation(Callback):
    """Holds validation up, and counts for how long."""

    seconds = 0.0

    def on_validation_batch_start(self, *_):
        time.sleep(NAP)
        self.seconds += NAP


def fit(tmp_path, target, store, *callbacks, **options):
    trainer = toy_trainer(tmp_path, callbacks=[Throughput(), *callbacks], max_epochs=1, **options)
    begin = time.perf_counter()
    trainer.fit(toy_module(target), toy_data(Path(store)))
    seconds = time.perf_counter() - begin
    return logged_rows(jobs.read_rows(Path(trainer.log_dir))), seconds, trainer


def seconds_of(rows, stage, steps=2):
    return sum(steps * row["throughput/step_s"] * row[f"time/{stage}_pct"] / 100 for row in rows)


def test_waiting_for_data_is_data(tmp_path, toy_target, observed_store, monkeypatch):
    usual = BatchDataset.__getitem__

    def slow(self, batch):
        time.sleep(NAP)
        return usual(self, batch)

    monkeypatch.setattr(BatchDataset, "__getitem__", slow)
    rows, *_ = fit(tmp_path, toy_target, observed_store)
    assert seconds_of(rows, "data") >= 12 * NAP


def test_a_slow_checkpoint_is_storage(tmp_path, toy_target, observed_store):
    kept = jobs.KeepEvery(tmp_path / "kept")
    options = {"plugins": [SlowDisk()], "enable_checkpointing": True}
    rows, *_ = fit(tmp_path, toy_target, observed_store, kept, **options)
    assert seconds_of(rows, "storage") >= 5 * NAP  # the last one is saved behind the last log


def test_validation_is_no_part_of_training(tmp_path, toy_target, observed_store):
    slow = SlowValidation()
    options = {"val_check_interval": 4, "check_val_every_n_epoch": None}
    rows, seconds, _ = fit(tmp_path, toy_target, observed_store, slow, **options)
    assert slow.seconds >= 3 * NAP
    assert sum(2 * row["throughput/step_s"] for row in rows) < seconds - slow.seconds


def test_the_trainers_own_profiler_hears_everything_and_is_given_back(tmp_path, toy_target, observed_store):
    _, _, trainer = fit(tmp_path, toy_target, observed_store, profiler="simple")
    assert type(trainer.profiler).__name__ == "SimpleProfiler"
    actions = trainer.profiler.recorded_durations
    assert len(actions["run_training_batch"]) == 12
    assert not trainer.profiler.current_actions


def test_a_run_that_fails_gives_the_profiler_back(tmp_path, toy_target, observed_store):
    class Fail(Callback):
        def on_train_batch_start(self, *_):
            raise OSError("no")

    trainer = toy_trainer(tmp_path, callbacks=[Throughput(), Fail()])
    own = trainer.profiler
    with pytest.raises(OSError, match="no"):
        trainer.fit(toy_module(toy_target), toy_data(Path(observed_store)))
    assert trainer.profiler is own
