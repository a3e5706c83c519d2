"""What is refused is refused on every rank, so that none waits for the others."""

import re

import pytest

from tests.ranks.pool import JobFailed
from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]


def refusals(ranks, tmp_path, target, store, **options) -> list[str]:
    with pytest.raises(JobFailed) as failed:
        ranks.run("tests.ranks.jobs:fit", root=str(tmp_path), target=str(target), store=str(store), **options)
    return [error or "" for error in failed.value.errors]


def test_fewer_samples_than_ranks(tmp_path, toy_target, two_ranks):
    store = make_store(tmp_path, toy_target, [20])
    for error in refusals(two_ranks, tmp_path / "run", toy_target, store):
        assert "1 samples cannot feed 2 ranks: fewer samples than ranks" in error


def test_lightnings_own_sampler(tmp_path, toy_target, two_ranks):
    store = make_store(tmp_path, toy_target, [20] * 8)
    for error in refusals(two_ranks, tmp_path / "run", toy_target, store, use_distributed_sampler=True):
        assert "use_distributed_sampler must be false" in error


def test_ranks_that_hold_different_stores(tmp_path, toy_target, two_ranks):
    for rank, lengths in enumerate(([20] * 8, [20] * 7 + [21])):
        make_store(tmp_path / str(rank), toy_target, lengths)
    with pytest.raises(JobFailed) as failed:
        two_ranks.run(
            "tests.ranks.jobs:fit_from_own_store",
            root=str(tmp_path / "run"),
            target=str(toy_target),
            stores=str(tmp_path),
        )
    for error in failed.value.errors:
        assert re.search(r"ranks disagree about the plan: \w{24} on rank 0, \w{24} on rank 1", str(error))
        assert re.search(r"\(store: \w+ on rank 0, \w+ on rank 1\)", str(error))
