"""Two ranks save by the clock, from a process of its own, into a store that is slow: nobody waits for it."""

import logging

import numpy as np
import pytest

from tests.ranks.forked import ForkedFit
from tests.ranks.stored_runs import assert_all_whole, stored_config
from tests.runs import make_store

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

LENGTHS = np.random.default_rng(5).integers(6, 33, 61).tolist()
HANG_S = 20.0
"""Long against anything else that holds up a step on a busy machine."""
EVERY_S = 0.5


def longest_gap(run, rank):
    """Seconds between the ends of two micro-batches."""
    ends = [event["at"] for event in run.events(rank) if event["event"] == "end"]
    return max(later - earlier for earlier, later in zip(ends, ends[1:], strict=False))


def test_saves_by_the_clock_into_a_store_that_hangs(tmp_path, toy_target, weed, s3_env, proxy, s3_uri):
    store = make_store(tmp_path / "store", toy_target, LENGTHS)
    settings = proxy.settings(read_timeout_s=60.0)
    saves = {"uri": s3_uri, "settings": settings, "every_n_steps": None, "keep_last": -1}
    folder = tmp_path / "run"
    values = stored_config(
        folder,
        toy_target,
        store,
        saves=saves | {"every_minutes": EVERY_S / 60, "end_deadline_s": 300.0},
        watched={"delay": 0.25},
        max_steps=60,
        max_epochs=-1,
    )
    hang = proxy.add("hang", path="/data/", method="PUT", seconds=HANG_S)
    with ForkedFit(folder, values, weed.environment) as run:
        assert run.finish() == [0, 0], run.output
    assert hang.seen == 1
    kept = assert_all_whole(s3_uri, proxy.settings()).complete
    assert kept[0].step == 60
    ends = [event["at"] for event in run.events() if event["event"] == "end"]
    assert 2 <= len(kept) <= (ends[-1] - ends[0]) / EVERY_S + 2
    gaps = [longest_gap(run, rank) for rank in range(2)]
    log.info("longest gap between micro-batches: %.2f s on rank 0, %.2f s on rank 1", *gaps)
    assert max(gaps) < HANG_S / 2
