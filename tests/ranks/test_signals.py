"""SIGTERM and Ctrl-C on real processes (design.md 4, Signals; field.md 34)."""

import os
import random
import signal
import time

import numpy as np
import pytest
import torch

from tests.ranks.runs import Fit
from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

REPEAT = int(os.environ.get("DFLASH_REPEAT", "1"))
LENGTHS = np.random.default_rng(5).integers(6, 33, 61).tolist()
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}
DELAY = 0.05
AHEAD = [
    "--model.target_devices=2",
    "--trainer.callbacks+=PrefetchBalance",
    "--trainer.callbacks.delivery=in_order",
]
"""Threads that run two targets ahead, whose training is that of a run without them."""


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=[10, 30, 20, 15])


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory, toy_target, store):
    with Fit(tmp_path_factory.mktemp("whole") / "run", "lightning", toy_target, store) as run:
        assert run.finish() == 0
    return run


def trained(run: Fit, rank: int) -> list[tuple[str, int]]:
    """What a rank did but for validation, of which ranks have unequal shares."""
    return [(e["event"], e["steps"]) for e in run.events(rank) if e["event"] != "validation"]


def stopped_at(run: Fit) -> int:
    """All ranks made the same number of steps and left one whole checkpoint; that number."""
    (checkpoint,) = run.checkpoints
    content = torch.load(checkpoint, weights_only=True)
    steps = content["DFlashDataModule"]["position"]["steps"]
    assert checkpoint.name == f"stopped-step={steps}.ckpt"
    last = [event for event in run.events(0) if event["event"] == "end"][-1]
    assert last["steps"] == steps
    for rank in (1,) if run.events(1) else ():
        assert trained(run, rank) == trained(run, 0)
    return int(steps)


def resumed_exactly(run: Fit, whole: Fit, folder, launch) -> Fit:
    """The run that goes on from where `run` stopped; it ends with the weights of `whole`."""
    with Fit(folder, launch, run.target, run.store, resume=run.checkpoints[0], words=run.words) as rest:
        assert rest.finish() == 0, rest.output[-3000:]
    ours, theirs = (torch.load(r.folder / "watch" / "final.ckpt", weights_only=True) for r in (rest, whole))
    assert ours["DFlashDataModule"] == theirs["DFlashDataModule"]
    for name, value in theirs["state_dict"].items():
        assert torch.equal(ours["state_dict"][name], value), name
    return rest


def assert_resumes_exactly(run: Fit, whole: Fit, folder, launch):
    steps = stopped_at(run)
    rest = resumed_exactly(run, whole, folder, launch)
    assert all(int(row["step"]) < steps for row in run.rows)
    assert run.rows + rest.rows == whole.rows


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("attempt", range(REPEAT))
def test_one_signalled_rank_stops_both(attempt, rank, tmp_path, toy_target, store, never_stopped):
    chance = random.Random(f"{attempt} {rank}")
    with Fit(tmp_path / "run", "lightning", toy_target, store, delay=DELAY) as run:
        pid = run.wait_for(rank, chance.randint(1, 12))
        time.sleep(chance.random() * 2 * DELAY)
        os.kill(pid, signal.SIGTERM)
        assert run.finish() == 143, run.output[-3000:]
    assert_resumes_exactly(run, never_stopped, tmp_path / "rest", "lightning")


@pytest.mark.parametrize("rank", [0, 1])
def test_one_signalled_rank_stops_both_with_targets_ahead(rank, tmp_path, toy_target, store, never_stopped):
    """What was prefetched and not trained is lost with its threads, and computed again."""
    with Fit(tmp_path / "run", "lightning", toy_target, store, delay=DELAY, words=AHEAD) as run:
        os.kill(run.wait_for(rank, 5), signal.SIGTERM)
        assert run.finish() == 143, run.output[-3000:]
    assert stopped_at(run) >= 1
    rest = resumed_exactly(run, never_stopped, tmp_path / "rest", "lightning")
    assert any(row.get("prefetch/queue_depth_3") for row in rest.rows)  # of both ranks' two devices


@pytest.mark.parametrize("launch", ["lightning", "torchrun"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_everybody_is_signalled(launch, number, tmp_path, toy_target, store):
    """As a terminal's Ctrl-C and a scheduler do. torchrun hands the signal on: its ranks get it twice."""
    with Fit(tmp_path / "run", launch, toy_target, store, delay=DELAY) as run:
        run.wait_for(1, 3)
        os.killpg(run.process.pid, number)
        code = run.finish()
    assert stopped_at(run) >= 1
    assert code == CODES[number] if launch == "lightning" else code != 0


@pytest.mark.parametrize("rank", [0, 1])
def test_under_torchrun_one_signalled_rank_stops_both(rank, tmp_path, toy_target, store):
    with Fit(tmp_path / "run", "torchrun", toy_target, store, delay=DELAY) as run:
        os.kill(run.wait_for(rank, 3), signal.SIGTERM)
        assert run.finish() == 1  # torchrun's own way to say that a rank did not return 0
    assert stopped_at(run) >= 1
    assert "exitcode  : 143" in run.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_process(number, tmp_path, toy_target, store):
    with Fit(tmp_path / "run", "alone", toy_target, store, delay=DELAY) as run:
        os.kill(run.wait_for(0, 3), number)
        assert run.finish() == CODES[number], run.output[-3000:]
    assert stopped_at(run) >= 1
    assert "resume with --ckpt_path" in run.output


def test_during_validation_the_run_ends_behind_it(tmp_path, toy_target, store):
    """The validation behind the last step is followed by no step that could carry the vote."""
    with Fit(tmp_path / "run", "alone", toy_target, store, delay=0.5) as run:
        os.kill(run.wait_for(0, 1, event="validation"), signal.SIGTERM)
        assert run.finish() == 143, run.output[-3000:]
    (checkpoint,) = run.checkpoints
    content = torch.load(checkpoint, weights_only=True)
    assert content["dflash"]["validated_at"] == content["DFlashDataModule"]["position"]["steps"]
    assert "val/tau" in run.rows[-1]


def test_a_second_signal_stops_at_once(tmp_path, toy_target, store):
    with Fit(tmp_path / "run", "alone", toy_target, store, delay=60, stop={"echo_seconds": 0.2}) as run:
        pid = run.wait_for(0, 1)
        os.kill(pid, signal.SIGTERM)
        time.sleep(1)
        assert run.process.poll() is None  # the first one waits for the step
        os.kill(pid, signal.SIGTERM)
        assert run.process.wait(20) == -signal.SIGTERM  # 143 in a shell
    assert run.checkpoints == []
