"""Stop on one world, go on with another: each sample once; with the same: bit for bit (design.md 5)."""

from collections import Counter

import numpy as np
import pytest
import torch

from tests.ranks import jobs
from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

LENGTHS = np.random.default_rng(5).integers(6, 33, 61).tolist()
STOP = 4


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    held_out = [10, 30, 20, 15, 9]
    return str(make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS, held_out=held_out))


def settings(target, store):
    return {"target": str(target), "store": store, "keep": True, "log_every_n_steps": 3}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, toy_target, store, two_ranks):
    """Two ranks, never stopped; a checkpoint behind every step. Results by rank."""
    root = str(tmp_path_factory.mktemp("whole"))
    return root, two_ranks.run("tests.ranks.jobs:fit", root=root, **settings(toy_target, store))


def resumed(run, root, whole, target, store, **options):
    checkpoint = f"{whole[0]}/kept/step={STOP}.ckpt"
    return run(root=str(root), resume=checkpoint, **settings(target, store), **options)


def on_all(ranks):
    return lambda **arguments: ranks.run("tests.ranks.jobs:fit", **arguments)


def samples(batches, epoch):
    """How often each sample came in one epoch; a ghost is no sample."""
    return Counter(i for batch in batches if batch["epoch"] == epoch for i in batch["ids"] if i >= 0)


def assert_every_sample_once(before, after):
    """`before`: batches of the stopped run up to its checkpoint; `after`: of the resumed one; all ranks."""
    assert 0 < len(samples(before, 0)) < len(LENGTHS)  # the stop was inside the epoch
    everything = Counter(range(len(LENGTHS)))
    assert samples(before, 0) + samples(after, 0) == everything
    assert samples(after, 1) == everything


def until_stop(ranks, accumulate=2):
    return [batch for rank in ranks for batch in rank["batches"][: STOP * accumulate]]


def test_two_ranks_never_stopped_see_every_sample_once(whole):
    batches = [batch for rank in whole[1] for batch in rank["batches"]]
    for epoch in (0, 1):
        assert samples(batches, epoch) == Counter(range(len(LENGTHS)))
    assert len({len(rank["batches"]) for rank in whole[1]}) == 1


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_from_two_ranks_to_one(accumulate, whole, tmp_path, toy_target, store):
    alone = resumed(jobs.fit, tmp_path, whole, toy_target, store, accumulate_grad_batches=accumulate)
    assert_every_sample_once(until_stop(whole[1]), alone["batches"])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_from_two_ranks_to_three(accumulate, whole, tmp_path, toy_target, store, three_ranks):
    run = on_all(three_ranks)
    ours = resumed(run, tmp_path, whole, toy_target, store, accumulate_grad_batches=accumulate)
    assert_every_sample_once(until_stop(whole[1]), [batch for rank in ours for batch in rank["batches"]])
    assert len({len(rank["batches"]) for rank in ours}) == 1
    rates = [step["lr"] for step in ours[0]["steps"]]
    before, after = whole[1][0]["steps"][STOP - 1]["lr"], whole[1][0]["steps"][STOP]["lr"]
    assert abs(rates[0] - before) <= 2 * abs(after - before)  # the rate goes on from where it was


def test_on_the_same_world_nothing_shows(whole, tmp_path, toy_target, store, two_ranks):
    ours = resumed(on_all(two_ranks), tmp_path, whole, toy_target, store)
    for rank, never_stopped in zip(ours, whole[1], strict=True):
        assert rank["batches"] == never_stopped["batches"][STOP * 2 :]
        assert rank["steps"] == never_stopped["steps"][STOP:]
        assert rank["position"] == never_stopped["position"]
        for name, value in rank["weights"].items():
            assert torch.equal(value, never_stopped["weights"][name]), name
        for index, moments in never_stopped["moments"].items():
            assert all(torch.equal(rank["moments"][index][name], value) for name, value in moments.items())
    rest = [row for row in whole[1][0]["rows"] if int(row["step"]) >= STOP]
    assert ours[0]["rows"] == rest
    assert len(rest) >= 4


def test_a_checkpoint_of_two_ranks_is_one_file_without_a_rank(whole):
    content = torch.load(f"{whole[0]}/kept/step={STOP}.ckpt", weights_only=True)
    assert content["DFlashDataModule"]["position"]["steps"] == STOP
    assert content["DFlashDataModule"]["position"]["cursor"] == STOP * 4
