"""The S3 server of a run dies for a minute, the run is stopped and resumed by address: no number differs from
those of a run without S3."""

import signal
import time

import pytest
import yaml

from tests.end_to_end.test_tiny import ROOT, TARGET
from tests.ranks.forked import ForkedFit
from tests.ranks.jobs import read_rows
from tests.ranks.stored_runs import assert_all_whole, assert_equal_runs, with_saves
from tests.s3.server import Weed

pytestmark = pytest.mark.slow

STEPS = 100
WARNING = "storage has been failing for"
OUTAGE_S = 65.0
"""From the first warning on; longer than a minute, after which it is told again."""


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Of this test alone: it is killed."""
    weed = Weed(tmp_path / "weed")
    for name, value in weed.environment.items():
        monkeypatch.setenv(name, value)
    weed.start()
    yield weed
    weed.kill()


@pytest.fixture
def store(tmp_path):
    from transformers import AutoTokenizer

    from dflash_lightning.data.prepare import PrepareConfig, prepare

    config = PrepareConfig(input=(str(ROOT / "examples/tiny/rows.jsonl"),), output=str(tmp_path / "store"))
    prepare(config, AutoTokenizer.from_pretrained(ROOT / TARGET))
    return tmp_path / "store"


def tiny_config(folder, store, saves, delay):
    """configs/tiny.yaml with S3Checkpoint on this server, or without it."""
    values = yaml.safe_load((ROOT / "configs/tiny.yaml").read_text())
    values["data"]["store"] = str(store)
    values["trainer"] |= {"default_root_dir": str(folder), "max_steps": STEPS, "max_epochs": -1}
    values["trainer"] |= {"enable_model_summary": False, "enable_progress_bar": False}
    return with_saves(values, folder, saves, {"delay": delay})


def rows(folder, version):
    """What does not depend on the clock, by step."""
    kept = ("step", "train/loss", "train/grad_norm", "train/accuracy", "loss/", "batch/", "val/")
    found = read_rows(folder / "logs" / f"version_{version}")
    picked = [{name: row[name] for name in row if name.startswith(kept) and row[name]} for row in found]
    return [row for row in picked if len(row) > 1]


def test_the_server_dies_for_a_minute(tmp_path, store, server):
    uri = "s3://train/outage"
    saves = {"uri": uri, "settings": server.settings(), "every_n_steps": 20, "deadline_s": 120.0}

    def fit(name, *words, saves=saves, delay=0.0):
        values = tiny_config(tmp_path / name, store, saves, delay)
        return ForkedFit(tmp_path / name, values, server.environment, words, world=1)

    with fit("run", delay=0.9) as run:
        run.wait_until(lambda: assert_all_whole(uri, server.settings()).complete, "a durable checkpoint")
        server.kill()
        down = time.monotonic()
        run.wait_until(lambda: WARNING in run.output, "a warning")
        time.sleep(OUTAGE_S)
        steps_meanwhile, server_back = run.steps(), time.monotonic()
        warned = run.output.count(WARNING)
        server.start()
        run.wait_for_step(steps_meanwhile + 2)
        run.signal(0, signal.SIGTERM)
        assert run.finish() == [143], run.output
    during = [e["at"] for e in run.events() if e["event"] == "end" and down < e["at"] < server_back]
    gaps = [later - earlier for earlier, later in zip(during, during[1:], strict=False)]
    assert max(gaps) < OUTAGE_S / 3  # had a step waited, it would have been for the server
    assert len(during) >= 4
    assert 1 <= warned <= 2
    newest = assert_all_whole(uri, server.settings()).complete[0]
    assert (newest.step, newest.kind) == (run.steps(), "signal")

    with fit("run", f"--ckpt_path={uri}") as rest:
        assert rest.finish() == [0], rest.output
    assert rest.loaded == (newest.name, newest.step)
    assert assert_all_whole(uri, server.settings()).complete[0].step == STEPS
    with fit("whole", saves={}) as whole:
        assert whole.finish() == [0], whole.output
    assert_equal_runs(tmp_path / "run", tmp_path / "whole")
    assert rows(tmp_path / "run", 0) + rows(tmp_path / "run", 1) == rows(tmp_path / "whole", 0)
