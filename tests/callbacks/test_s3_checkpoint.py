"""S3Checkpoint in one process, on a folder. Two ranks: tests/ranks; resuming: test_s3_resume.py."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from lightning.pytorch.strategies import FSDPStrategy

from dflash_lightning.callbacks.s3_checkpoint import S3Checkpoint
from dflash_lightning.callbacks.signals import StopOnSignal, StoppedBySignal
from dflash_lightning.checkpoint.resuming.fetch import fetch_checkpoint
from dflash_lightning.checkpoint.session import Session
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.settings import StoreSettings
from dflash_lightning.training.checkpoints.saves import CheckpointsLost
from tests.callbacks.saving_runs import (
    EVERY_4,
    At,
    fit,
    in_thread,
    manifests_in,
    steps_in,
)
from tests.callbacks.saving_runs import store as store
from tests.callbacks.saving_runs import whole as whole
from tests.ranks.jobs import logged, read_rows
from tests.runs import toy_module, toy_trainer


def test_it_changes_nothing_and_leaves_the_newest(tmp_path, toy_target, store, whole, caplog):
    ours = fit(tmp_path, toy_target, store, in_thread(tmp_path / "kept", keep_last=2))
    assert ours.steps == whole.steps
    total = len(whole.steps)
    kept = steps_in(tmp_path / "kept")
    assert len(kept) == 2
    assert kept[-1][0] == total
    assert not (tmp_path / "kept" / "owner.json").exists()
    (last,) = [line for line in caplog.messages if line.startswith(f"step {kept[-1][0]} ({kept[-1][1]})")]
    where = f"{tmp_path}/kept/step={total}-"
    assert re.fullmatch(rf".* is durable \(0\.\d MB, \d+\.\d s after the copy\): {where}[0-9a-f]{{8}}", last)


@pytest.mark.slow
def test_what_stays_is_the_newest_the_best_and_every_nth(tmp_path, toy_target, store):
    folder = tmp_path / "kept"
    callback = in_thread(
        folder, every_n_steps=1, keep_last=1, keep_best=1, monitor="val/tau", keep_every_n_steps=5
    )
    fit(tmp_path, toy_target, store, callback, **EVERY_4)
    kept = manifests_in(folder)
    validated = [m for m in kept if "val/tau" in m.metrics]
    assert {m.kind for m in validated} <= {"best", "end"}
    assert all(m.step % 2 == 0 for m in validated)  # behind every second step
    fifth = {m.step for m in kept if m.step % 5 == 0}
    assert fifth
    assert len(kept) <= 2 + len(fifth) + 1
    assert kept[-1].facts["world_size"] == 1
    assert kept[-1].facts["plan_digest"]


@pytest.mark.slow
def test_best_of_several_validations(tmp_path, toy_target, store):
    folder = tmp_path / "kept"
    callback = in_thread(folder, every_n_steps=None, keep_last=0, keep_best=1, monitor="val/loss", mode="min")
    fit(tmp_path, toy_target, store, callback, **EVERY_4, max_epochs=2)
    rows = read_rows(tmp_path / "logs" / "version_0")
    lowest = min(logged(rows, "val/loss"))
    best = fetch_checkpoint(f"{folder}/best", StoreSettings(), tmp_path / "got").manifest
    assert best.metrics["val/loss"] == pytest.approx(lowest, rel=1e-6)


@pytest.mark.slow
def test_a_metric_that_no_validation_gives_is_refused(tmp_path, toy_target, store):
    with pytest.raises(ValueError, match="no validation gives 'val/nothing'; monitor one of .*val/tau"):
        fit(tmp_path, toy_target, store, in_thread(tmp_path / "kept", monitor="val/nothing"))


@pytest.mark.slow
def test_what_is_logged(tmp_path, toy_target, store):
    fit(tmp_path, toy_target, store, in_thread(tmp_path / "kept"), At(5, lambda: time.sleep(1)))
    rows = read_rows(tmp_path / "logs" / "version_0")
    blocked = logged(rows, "checkpoint/blocked_s")
    assert len(blocked) == len([row for row in rows if "train/loss" in row])
    assert all(0 < seconds < 5 for seconds in blocked)
    assert logged(rows, "checkpoint/durable_after_s")
    assert logged(rows, "checkpoint/bytes")[-1] > 0
    assert set(logged(rows, "checkpoint/retries")) == {0.0}
    assert len(logged(rows, "checkpoint/queue")) == len(logged(rows, "checkpoint/coalesced")) == len(blocked)
    names = {name for row in rows for name in row if name.startswith("checkpoint/")}
    assert names == set(re.findall(r"checkpoint/\w+", S3Checkpoint.__doc__))
    page = (Path(__file__).parents[2] / "docs" / "checkpoints.md").read_text()
    table = page.partition("| `checkpoint/` | is |")[2].partition("\n\n")[0]
    assert names == {f"checkpoint/{name}" for name in re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)}


def test_taking_the_memory_counts_as_standing_still(tmp_path, toy_target, store, monkeypatch):
    prepare, slow = Session.prepare, 1.0

    def slowly(self, state):
        time.sleep(slow)
        prepare(self, state)

    monkeypatch.setattr(Session, "prepare", slowly)
    fit(tmp_path, toy_target, store, in_thread(tmp_path / "kept", every_n_steps=100))
    first, *later = logged(read_rows(tmp_path / "logs" / "version_0"), "checkpoint/blocked_s")
    assert first >= slow
    assert later
    assert set(later) == {0.0}


class Refuse:
    """From a call on, the store refuses every upload: a right was taken away during the run."""

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch

    def __call__(self):
        def refused(self, key, *, size_hint):
            raise StoreError(f"may not write {key}", kind="denied")

        self.monkeypatch.setattr(LocalStore, "open_upload", refused)


def test_a_store_that_refuses_ends_the_run_at_the_next_step_once(
    tmp_path, toy_target, store, monkeypatch, caplog
):
    pause = At(5, lambda: time.sleep(0.5))
    with pytest.raises(
        CheckpointsLost, match=r"can no longer be stored: .*step 4 \(step\).*may not write"
    ) as caught:
        fit(tmp_path, toy_target, store, in_thread(tmp_path / "kept"), At(3, Refuse(monkeypatch)), pause)
    cause = caught.value.__cause__
    assert isinstance(cause, StoreError)
    assert cause.kind == "denied"
    assert steps_in(tmp_path / "kept") == [(2, "step")]
    assert "is not stored, and the run ends" in caplog.text


@pytest.mark.slow
def test_on_request_it_is_only_told(tmp_path, toy_target, store, monkeypatch, whole, caplog):
    callback = in_thread(tmp_path / "kept", on_error="warn")
    ours = fit(
        tmp_path, toy_target, store, callback, At(3, Refuse(monkeypatch)), At(5, lambda: time.sleep(0.3))
    )
    assert ours.steps == whole.steps
    assert "the checkpoint of step 4 (step) is given up" in caplog.text


@pytest.mark.slow
def test_a_last_save_that_is_lost_fails_the_run(tmp_path, toy_target, store, monkeypatch, whole):
    last = At(len(whole.steps), Refuse(monkeypatch))
    with pytest.raises(CheckpointsLost, match="the run is over, but its last checkpoint is not stored"):
        fit(tmp_path, toy_target, store, in_thread(tmp_path / "kept", every_n_steps=3, keep_last=1), last)


def test_a_store_that_cannot_be_used_is_refused_before_training(tmp_path, toy_target, store):
    (tmp_path / "kept").write_text("a file where a folder should be")
    with pytest.raises(StoreError, match="checkpoints cannot be kept at"):
        fit(tmp_path, toy_target, store, in_thread(tmp_path / "kept"))


def test_a_strategy_that_nobody_has_tried_is_refused(tmp_path, toy_target):
    trainer = toy_trainer(tmp_path)
    trainer._accelerator_connector.strategy = FSDPStrategy()  # by itself it asks for a GPU
    with pytest.raises(ValueError, match="not know how FSDPStrategy spreads the state .*strategy: ddp or"):
        in_thread(tmp_path).setup(trainer, toy_module(toy_target), "fit")


def test_a_single_snapshot_buffer_is_refused_before_training(tmp_path):
    with pytest.raises(ValueError, match="arenas must be 2 or more, or null for as many as fit, got 1"):
        in_thread(tmp_path, arenas=1)


def test_two_runs_on_one_prefix_are_refused(tmp_path, toy_target, store):
    folder = tmp_path / "kept"
    folder.mkdir()
    other = {"run_id": "other", "host": "elsewhere", "pid": 1, "machine": "", "nonce": "n"}
    (folder / "owner.json").write_text(
        json.dumps({**other, "started": time.time(), "heartbeat": time.time()})
    )
    with pytest.raises(StoreError, match="run other .process 1 on elsewhere. writes here"):
        fit(tmp_path, toy_target, store, in_thread(folder))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_signal_leaves_a_durable_checkpoint_and_the_code(number, code, tmp_path, toy_target, store, whole):
    folder = tmp_path / "kept"
    sent = At(3, lambda: os.kill(os.getpid(), number))  # heard with the votes of the next step
    with pytest.raises(StoppedBySignal) as reason:
        fit(tmp_path / "a", toy_target, store, in_thread(folder, every_n_steps=100), StopOnSignal(), sent)
    assert reason.value.code == code
    assert steps_in(folder) == [(4, "signal")]
    assert [*(tmp_path / "a").rglob("*.ckpt")] == []
    rest = fit(tmp_path / "b", toy_target, store, in_thread(folder), resume=f"{folder}/last")
    assert rest.steps == whole.steps[4:]


def test_what_is_not_durable_in_time_is_named(tmp_path, toy_target, store, monkeypatch, caplog):
    def slow(self, key, *, size_hint):
        time.sleep(3)
        raise StoreError("too late", kind="transient")

    stall = At(3, lambda: monkeypatch.setattr(LocalStore, "open_upload", slow))
    sent = At(3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    callback = in_thread(tmp_path / "kept", every_n_steps=100, deadline_s=0.3)
    with pytest.raises(StoppedBySignal) as reason:
        fit(tmp_path, toy_target, store, callback, StopOnSignal(), stall, sent)
    assert reason.value.code == 143
    assert "the checkpoint of step 4 (signal) is not stored, and the run ends" in caplog.text


@pytest.mark.slow
def test_minutes_count_from_the_last_save(tmp_path, toy_target, store, whole):
    folder = tmp_path / "kept"
    callback = in_thread(folder, every_n_steps=None, every_minutes=0.4 / 60, keep_last=-1)
    fit(tmp_path, toy_target, store, callback, At(3, lambda: time.sleep(0.5)))
    assert 3 in {step for step, _ in steps_in(folder)}
    assert steps_in(folder)[-1][0] == len(whole.steps)
