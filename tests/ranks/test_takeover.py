"""Two runs and one prefix: the second is refused; if it takes over, the first ends on all ranks."""

import time

import numpy as np
import pytest

from dflash_lightning.checkpoint.claiming.claim import claim
from dflash_lightning.checkpoint.stores.open import open_store
from tests.ranks.forked import ForkedFit
from tests.ranks.stored_runs import assert_all_whole, stored_config
from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

LENGTHS = np.random.default_rng(5).integers(6, 33, 61).tolist()


def test_refused_and_taken_over(tmp_path, toy_target, weed, s3_env, s3_settings, s3_uri):
    store = make_store(tmp_path / "store", toy_target, LENGTHS)

    def fit(name, **watched):
        saves = {"uri": s3_uri, "settings": s3_settings, "every_n_steps": 2, "keep_last": -1}
        values = stored_config(
            tmp_path / name,
            toy_target,
            store,
            saves=saves,
            watched={"delay": 0.2, **watched},
            max_steps=1000,
            max_epochs=-1,
        )
        return ForkedFit(tmp_path / name, values, weed.environment)

    with fit("first") as first:
        first.wait_for_step(2)
        with fit("second") as second:
            assert second.finish() == [1, 1], second.output
        assert second.output.count("two runs under one prefix would delete each other's checkpoints") == 2
        assert second.steps() == -1
        assert all(rank.is_alive() for rank in first.ranks), first.output
        first.wait_until(lambda: assert_all_whole(s3_uri, s3_settings).complete, "a durable checkpoint")

        place = open_store(s3_uri, s3_settings)
        other = claim(*place, "the-other-run", now=time.time(), stale_after_s=0.0, watch_s=0.0)
        assert first.finish() == [1, 1], first.output
    assert "now belongs to run the-other-run" in first.output
    assert "checkpoints can no longer be stored: rank 0 says why" in first.output
    steps = {first.steps(rank) for rank in range(2)}
    assert len(steps) == 1
    kept = assert_all_whole(s3_uri, s3_settings).complete
    assert {m.kind for m in kept} == {"step"}  # nothing is stored at the end of a run that lost its prefix
    other.renew(time.time())  # and its claim is the other's still
    other.release()
