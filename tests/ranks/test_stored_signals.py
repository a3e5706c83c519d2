"""SIGTERM and S3Checkpoint in a run that torchrun started from the command line."""

import os
import signal
import time

import numpy as np
import pytest

from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.stores.open import open_store
from tests.ranks.runs import Fit
from tests.ranks.stored_runs import assert_all_whole, stored_config
from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

KILLED_AFTER_S = 30.0
"""Schedulers and torchrun do not wait longer for a process that they have signalled."""
LENGTHS = np.random.default_rng(5).integers(6, 33, 61).tolist()


@pytest.fixture
def started(tmp_path, toy_target, weed, s3_env):
    store = make_store(tmp_path / "store", toy_target, LENGTHS)

    def start(uri, settings, **saves):
        saves = {"uri": uri, "settings": settings, "every_n_steps": 100, **saves}
        folder = tmp_path / "run"
        values = stored_config(
            folder, toy_target, store, saves=saves, watched={"delay": 0.2}, max_steps=200, max_epochs=-1
        )
        return Fit(folder, "torchrun", toy_target, store, values=values, environment=weed.environment)

    return start


@pytest.mark.parametrize("rank", [0, 1])
def test_one_signalled_rank_leaves_one_durable_checkpoint(rank, started, s3_settings, s3_uri):
    with started(s3_uri, s3_settings, deadline_s=120.0) as run:
        os.kill(run.wait_for(rank, 5), signal.SIGTERM)
        assert run.finish() == 1, run.output[-3000:]  # torchrun's own way to say that a rank did not return 0
    assert "exitcode  : 143" in run.output
    assert f"resume with --ckpt_path {s3_uri}" in run.output
    (entry,) = assert_all_whole(s3_uri, s3_settings).entries
    steps = {run.events(r)[-1]["steps"] for r in range(2)}
    assert steps == {entry.manifest.step}
    assert entry.manifest.kind == "signal"
    assert list(run.folder.rglob("stopped-*.ckpt")) == []


def test_what_is_not_durable_in_time_is_named(started, proxy, s3_settings, s3_uri):
    """The server takes no data from the third step on, so that the last save cannot be stored."""
    with started(s3_uri, proxy.settings(read_timeout_s=60.0), deadline_s=3.0) as run:
        pid = run.wait_for(0, 5)
        proxy.add("hang", path="/data/", times=None, seconds=120.0)
        os.kill(pid, signal.SIGTERM)
        assert run.finish() == 1, run.output[-3000:]
    steps = run.events(0)[-1]["steps"]
    assert f"the checkpoint of step {steps} (signal) is not stored, and the run ends" in run.output
    assert "exitcode  : 143" in run.output
    assert list_manifests(*open_store(s3_uri, s3_settings)).manifests == ()


def test_a_store_that_does_not_answer_at_all_holds_up_neither_the_news_nor_the_end(
    started, proxy, s3_settings, s3_uri
):
    """Nothing is answered any more: no upload, no deletion, no sign of life, no giving back of the prefix."""
    with started(s3_uri, proxy.settings(read_timeout_s=60.0), deadline_s=3.0) as run:
        pid = run.wait_for(0, 5)
        proxy.add("hang", times=None, seconds=300.0)
        sent = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        assert run.finish() == 1, run.output[-3000:]
        assert time.monotonic() - sent < KILLED_AFTER_S
    lost = f"the checkpoint of step {run.events(0)[-1]['steps']} (signal) is not stored, and the run ends"
    assert run.output.index(lost) < run.output.index(
        "the prefix stays claimed for 300 s: storage has not answered"
    )
    assert "exitcode  : 143" in run.output
    assert list_manifests(*open_store(s3_uri, s3_settings)).manifests == ()
