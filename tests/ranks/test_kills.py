"""Two ranks on a real S3 server are killed at random moments and resumed each time: the end is that of a run
that was never killed, and no checkpoint that was published is ever missing or corrupt.

DFLASH_KILLS says how often, DFLASH_SEED chooses the moments; --log-cli-level=INFO shows what was counted.
"""

import logging
import os
import random
import time
from collections import Counter
from contextlib import ExitStack

import numpy as np
import pytest

from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.stores.open import open_store
from tests.ranks.forked import ForkedFit
from tests.ranks.stored_runs import assert_all_whole, assert_equal_runs, stored_config
from tests.runs import make_store

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

KILLS = int(os.environ.get("DFLASH_KILLS", "8"))
SEED = int(os.environ.get("DFLASH_SEED", "5"))
LENGTHS = np.random.default_rng(5).integers(6, 33, 240).tolist()
STEPS = 12 * KILLS + 20
FAST = 12
"""Micro-batches after which a launch goes slowly, so that few launches come to the end of the run."""
WAYS = ("both", "both", "pod", "pod", "rank 0", "rank 1", "uploader and both")
"""both: the ranks, whose uploader lives on; pod: that as well; one rank: the other has to end by itself."""


class Killed:
    """One run under one prefix, launched as often as it takes."""

    def __init__(self, folder, target, store, uri, settings, environment, stack):
        self.folder, self.target, self.store, self.uri = folder, target, store, uri
        self.settings, self.environment, self.stack = settings, environment, stack
        self.launches: list[ForkedFit] = []

    def start(self, **watched) -> ForkedFit:
        saves = {"uri": self.uri, "settings": self.settings, "every_n_steps": 1}
        saves |= {"deadline_s": 300.0, "if_missing": "fresh"}
        values = stored_config(
            self.folder, self.target, self.store, saves=saves, watched=watched, max_steps=STEPS, max_epochs=-1
        )
        fit = ForkedFit(self.folder, values, self.environment, ("--ckpt_path=last",))
        self.launches.append(self.stack.enter_context(fit))
        return self.launches[-1]

    @property
    def newest(self):
        return next(iter(list_manifests(*open_store(self.uri, self.settings)).manifests), None)

    @property
    def writers(self) -> set[int]:
        return {pid for launch in self.launches for pid in launch.uploaders}

    def wait_for_moment(self, launch: ForkedFit, chance: random.Random) -> None:
        """While it starts, after any number of micro-batches, or soon after its first durable checkpoint."""
        if chance.random() < 0.1:
            time.sleep(chance.random() * 3)  # while it starts
        elif chance.random() < 0.5:
            number = chance.randint(1, FAST)
            launch.wait_until(lambda: len(launch.events()) >= 2 * number, f"{number} micro-batches")
        else:
            before = self.newest
            launch.wait_until(lambda: self.newest not in (None, before), "durable checkpoint")
        time.sleep(chance.random() * 0.3)

    def kill(self, launch: ForkedFit, way: str, chance: random.Random) -> None:
        if way == "uploader and both":
            launch.kill_uploaders()
            time.sleep(chance.random())
        if way.startswith("rank") and launch.steps() >= 0:  # before, it is torchrun that ends the others
            launch.kill(int(way[-1]))
            assert 0 not in launch.finish()
        else:
            launch.kill(uploaders=way == "pod")
            launch.finish()


def test_thirty_kills(tmp_path, toy_target, weed, s3_env, s3_settings, s3_uri):
    store = make_store(tmp_path / "store", toy_target, LENGTHS)
    chance, count, began = random.Random(SEED), Counter(), time.monotonic()
    with ExitStack() as stack:
        run = Killed(tmp_path / "run", toy_target, store, s3_uri, s3_settings, weed.environment, stack)
        for number in range(KILLS):
            if run.newest is not None and run.newest.step > STEPS - FAST:
                break
            count.update(one_kill(run, WAYS[number % len(WAYS)], chance))
            assert_all_whole(s3_uri, s3_settings)
        last = run.start()
        assert last.finish(1800) == [0, 0], last.output
        killed_at = last.loaded[1]
        whole = stored_config(
            tmp_path / "whole", toy_target, store, saves={}, watched={}, max_steps=STEPS, max_epochs=-1
        )
        with ForkedFit(tmp_path / "whole", whole, weed.environment) as fit:
            assert fit.finish(1800) == [0, 0], fit.output
    assert_equal_runs(tmp_path / "run", tmp_path / "whole")
    assert assert_all_whole(s3_uri, s3_settings).complete[0].step == STEPS
    assert count["kills"] >= 0.8 * KILLS
    assert count["durable before the kill"] >= KILLS // 4
    assert count["from the newest known"] >= KILLS // 3
    assert killed_at >= KILLS
    seconds = time.monotonic() - began
    log.info("%d kills in %.0f s, %s, step %d of %d", KILLS, seconds, dict(count), killed_at, STEPS)


def one_kill(run: Killed, way: str, chance: random.Random) -> dict[str, int]:
    """Launch, kill, look at what it began with and what it left. Returns what there is to count."""
    alone = not run.writers
    before = run.newest  # behind the look for writers: where there is none this stays the newest
    launch = run.start(delay=0.05, fast=FAST)
    run.wait_for_moment(launch, chance)
    resumed = launch.loaded is not None and before is not None
    exact = resumed and launch.loaded[0] == before.name
    if resumed:
        assert exact or not alone  # else an uploader of an earlier launch was still at it
        first = [event["steps"] for rank in range(2) for event in launch.events(rank)[:1]]
        assert set(first) <= {launch.loaded[1]}
    now = run.newest
    fresh = now is not None and (before is None or now.name != before.name)
    run.kill(launch, way, chance)
    if way == "rank 1" and launch.steps() > 0:  # rank 0 stores its last whole state before it ends
        assert run.newest.step >= launch.steps()
    if chance.random() < 0.6:
        launch.wait_for_uploaders()
    return {"kills": 1, "resumed": resumed, "from the newest known": exact, "durable before the kill": fresh}
