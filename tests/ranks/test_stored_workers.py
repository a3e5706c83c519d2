"""S3Checkpoint beside workers of a DataLoader: nobody is forked, and nobody waits for the dead."""

import numpy as np
import pytest

from tests.ranks.forked import ForkedFit, children_of, command_of
from tests.ranks.stored_runs import assert_all_whole, assert_equal_runs, stored_config
from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

LENGTHS = np.random.default_rng(5).integers(6, 33, 61).tolist()


def test_killed_beside_workers_and_resumed(tmp_path, toy_target, weed, s3_env, s3_settings, s3_uri):
    store = make_store(tmp_path / "store", toy_target, LENGTHS)

    def fit(name, *words, saves, workers, delay=0.0):
        values = stored_config(
            tmp_path / name,
            toy_target,
            store,
            saves=saves,
            watched={"delay": delay},
            max_steps=10,
            max_epochs=1,
        )
        values["data"]["num_workers"] = workers
        return ForkedFit(tmp_path / name, values, weed.environment, words, world=1)

    saves = {"uri": s3_uri, "settings": s3_settings, "every_n_steps": 1}
    with fit("run", saves=saves, workers=1, delay=0.5) as run:
        run.wait_until(lambda: assert_all_whole(s3_uri, s3_settings).complete, "a durable checkpoint")
        (uploader,) = run.uploaders
        others = [command_of(pid) for pid in children_of(run.ranks[0].pid) if pid != uploader]
        assert any("multiprocessing.spawn" in command for command in others)  # the worker, not a fork
        assert "uploader import main" in command_of(uploader)  # a fresh interpreter
        run.kill()
        run.wait_for_uploaders()
    kept = assert_all_whole(s3_uri, s3_settings).complete[0].step
    with fit("run", "--ckpt_path=last", saves=saves, workers=1) as rest:
        assert rest.finish() == [0], rest.output
    assert rest.loaded[1] == kept
    with fit("whole", saves={}, workers=0) as whole:
        assert whole.finish() == [0], whole.output
    assert_equal_runs(tmp_path / "run", tmp_path / "whole")
