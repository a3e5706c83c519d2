"""Resuming through Lightning when what lies in the bucket is not what was put there."""

import re
import signal

import numpy as np
import pytest

from tests.ranks.forked import ForkedFit
from tests.ranks.stored_runs import assert_all_whole, assert_equal_runs, stored_config
from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

LENGTHS = np.random.default_rng(5).integers(6, 33, 61).tolist()
STEPS = 60


def test_one_changed_byte_in_the_newest_is_noticed_on_both(
    tmp_path, toy_target, weed, s3_env, s3_settings, s3_uri
):
    store = make_store(tmp_path / "store", toy_target, LENGTHS)
    key = s3_uri.removeprefix(f"s3://{weed.bucket}/")

    def fit(name, *words, saves, **watched):
        values = stored_config(
            tmp_path / name, toy_target, store, saves=saves, watched=watched, max_steps=STEPS, max_epochs=-1
        )
        return ForkedFit(tmp_path / name, values, weed.environment, words)

    with fit("whole", saves={}) as whole:
        assert whole.finish() == [0, 0], whole.output
    saves = {"uri": s3_uri, "settings": s3_settings, "every_n_steps": 2, "deadline_s": 120.0}
    with fit("run", saves=saves, fast=20) as run:
        run.wait_until(lambda: assert_all_whole(s3_uri, s3_settings).complete, "a durable checkpoint")
        run.signal(1, signal.SIGTERM)
        assert run.finish() == [143, 143], run.output
    complete = assert_all_whole(s3_uri, s3_settings).complete
    newest, older = complete[0], complete[1]
    client, path = weed.client(), f"{key}/{newest.files[0].key}"
    content = bytearray(client.get_object(Bucket=weed.bucket, Key=path)["Body"].read())
    content[len(content) // 2] ^= 1
    client.put_object(Bucket=weed.bucket, Key=path, Body=bytes(content))

    with fit("run", "--ckpt_path=last", saves=saves) as rest:
        assert rest.finish() == [0, 0], rest.output
    assert rest.loaded == (older.name, older.step)
    mark = newest.name.rpartition("-")[2]
    assert re.search(rf"skipping {s3_uri}/\S*-{mark}\S*: ", rest.output)
    assert [rest.events(rank)[0]["steps"] for rank in range(2)] == [older.step] * 2
    assert_equal_runs(tmp_path / "run", tmp_path / "whole")
