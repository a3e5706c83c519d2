"""Directions are those of the whole window, whatever the number of ranks."""

import math

import numpy as np
import pytest

from dflash_lightning.training.watch.projection import cosine
from tests.ranks import direction_jobs, jobs
from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]


def test_two_ranks_log_what_one_logs(tmp_path, toy_target, two_ranks):
    """Four micro-batches on one rank, or two on each of two: the same windows."""
    lengths = np.random.default_rng(5).integers(6, 33, 61).tolist()
    store = str(make_store(tmp_path / "store", toy_target, lengths))
    settings = {"target": str(toy_target), "store": store, "direction": {"every_n_steps": 1}}
    alone = direction_jobs.fit(str(tmp_path / "one"), accumulate_grad_batches=4, **settings)
    ours = two_ranks.run("tests.ranks.direction_jobs:fit", root=str(tmp_path / "two"), **settings)
    for name in ("cosine", "cosine_min", "noise_scale"):
        one, two = (jobs.logged(run["rows"], f"direction/{name}") for run in (alone, ours[0]))
        assert two == pytest.approx(one, rel=1e-3, abs=1e-4, nan_ok=True), name
        assert sum(map(math.isfinite, one)) >= 3
        # NaN where there is none; else the same number, to the last bit.
        shown = [rank["shown"][f"direction/{name}"] for rank in ours]
        assert shown[0] == shown[1]


def test_each_rank_compares_its_own_micro_batches_and_all_log_their_mean(tmp_path, toy_target, two_ranks):
    """Of three micro-batches a rank has two left: the third's gradient has been averaged with the others'."""
    lengths = np.random.default_rng(6).integers(6, 33, 80).tolist()
    store = str(make_store(tmp_path / "store", toy_target, lengths))
    ours = two_ranks.run(
        "tests.ranks.direction_jobs:fit", root=str(tmp_path / "two"), target=str(toy_target), store=store,
        direction={"every_n_steps": 1, "micro": True}, accumulate_grad_batches=3,
    )  # fmt: skip
    logged = jobs.logged(ours[0]["rows"], "direction/micro_cosine")
    assert len(logged) >= 3
    for number, value in enumerate(logged):
        pairs = [rank["micro"][3 * number : 3 * number + 2] for rank in ours]
        expected = sum(cosine(one, two - one) for one, two in pairs) / 2
        assert value == pytest.approx(expected, abs=0.02)
    shown = [rank["shown"]["direction/micro_cosine"] for rank in ours]
    assert shown[0] == shown[1]
