"""Hidden states from disk on several ranks: each reads its own batches, and all refuse together."""

import pytest
import torch

from tests.ranks import jobs
from tests.ranks.pool import JobFailed
from tests.runs import make_store
from tests.training.prefetch.test_stored_states import write

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

LENGTHS = [12, 30, 7, 18, 25, 9, 31, 14]


@pytest.fixture
def written(tmp_path, toy_target):
    store = make_store(tmp_path / "data", toy_target, LENGTHS, held_out=[10, 30])
    return store, write(tmp_path / "states" / "0", toy_target, store)


def test_two_ranks_read_what_one_reads(tmp_path, toy_target, two_ranks, written):
    store, states = written
    options = {"target": str(toy_target), "store": str(store), "module": {"hidden_states": states}}
    together = two_ranks.run("tests.ranks.jobs:fit", root=str(tmp_path / "two"), **options)
    alone = jobs.fit(str(tmp_path / "one"), **options, accumulate_grad_batches=4)
    assert alone["steps"][0]["norm"] == pytest.approx(together[0]["steps"][0]["norm"], rel=1e-5)
    for name, value in together[0]["weights"].items():
        assert torch.equal(value, together[1]["weights"][name])


def test_where_one_rank_lacks_its_folder_all_ranks_are_told(tmp_path, toy_target, two_ranks, written):
    store, _ = written
    with pytest.raises(JobFailed) as failed:
        two_ranks.run(
            "tests.ranks.states_jobs:fit_from_own_states",
            root=str(tmp_path / "run"),
            target=str(toy_target),
            store=str(store),
            states=str(tmp_path / "states"),
        )
    assert len(failed.value.errors) == 2
    for error in failed.value.errors:
        assert f"hidden states at {tmp_path}/states/1 are not there" in str(error)
