"""Two ranks, each with three target devices (CPUs stand in) that take their time as they like."""

from collections import Counter

import numpy as np
import pytest
import torch

from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

LENGTHS = np.random.default_rng(5).integers(6, 33, 61).tolist()
STOP = 4
JOB = "tests.ranks.prefetch_jobs:fit"


@pytest.fixture(scope="module")
def settings(tmp_path_factory, toy_target):
    store = make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=[10, 30, 20, 15, 9])
    return {"target": str(toy_target), "store": str(store), "keep": True, "log_every_n_steps": 3}


@pytest.fixture(scope="module")
def inline(tmp_path_factory, settings, two_ranks):
    root = str(tmp_path_factory.mktemp("inline"))
    return root, two_ranks.run(JOB, root=root, devices=0, policy={"depth": 0}, **settings)


def samples(batches, epoch=0):
    return Counter(i for batch in batches if batch["epoch"] == epoch for i in batch["ids"] if i >= 0)


def assert_equal_runs(ours, theirs, behind=0):
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["steps"] == other["steps"][behind:]
        assert mine["batches"] == other["batches"][2 * behind :]
        assert mine["position"] == other["position"]
        assert mine["threads"] == []
        for name, value in other["weights"].items():
            assert torch.equal(mine["weights"][name], value), name


@pytest.mark.parametrize("policy", [{"depth": 2}, {"depth": 1, "dispatch": "least_loaded"}], ids=str)
def test_in_order_is_bit_identical_on_two_ranks(policy, inline, tmp_path, settings, two_ranks):
    ours = two_ranks.run(JOB, root=str(tmp_path), devices=3, policy=policy, **settings)
    assert_equal_runs(ours, inline[1])


def test_in_order_goes_on_from_a_stop(inline, tmp_path, settings, two_ranks):
    checkpoint = f"{inline[0]}/kept/step={STOP}.ckpt"
    ours = two_ranks.run(
        JOB, root=str(tmp_path), devices=3, policy={"depth": 3}, resume=checkpoint, **settings
    )
    assert_equal_runs(ours, inline[1], behind=STOP)


def test_the_shared_counter_keeps_each_rank_even(tmp_path, settings, two_ranks):
    for rank in two_ranks.run(JOB, root=str(tmp_path), devices=3, policy={"depth": 3}, most=0.05, **settings):
        counts = rank["dispatched"]
        assert sum(counts) == len(rank["batches"]) == 20
        assert max(counts) - min(counts) <= 1


def test_ready_first_gives_every_sample_once_through_a_stop(inline, tmp_path, settings, two_ranks):
    policy = {"delivery": "ready_first", "depth": 3}
    common = {"devices": 3, "policy": policy, "most": 0.05, **settings}
    before = two_ranks.run(JOB, root=str(tmp_path / "a"), max_steps=STOP, **common)
    checkpoint = str(tmp_path / "a" / "kept" / f"step={STOP}.ckpt")
    after = two_ranks.run(JOB, root=str(tmp_path / "b"), resume=checkpoint, **common)
    batches = [batch for rank in (*before, *after) for batch in rank["batches"]]
    assert samples(batches) == Counter(range(len(LENGTHS)))
    assert samples([batch for rank in after for batch in rank["batches"]], 1) == Counter(range(len(LENGTHS)))
    assert all(rank["threads"] == [] for rank in (*before, *after))
    for mine, other in zip(after, inline[1], strict=True):
        assert mine["position"] == other["position"]
