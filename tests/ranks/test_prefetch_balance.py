"""Pipelines of several ranks are looked at together: eight that meet at every step, two that train."""

import numpy as np
import pytest

from tests.ranks.balance_jobs import Plain, meet
from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

LENGTHS = np.random.default_rng(5).integers(6, 33, 61).tolist()


def test_eight_ranks_name_the_one_that_holds_them_up(tmp_path):
    plan = Plain(world=8, slow=5, step=0.06, logs=4, steps=6)
    ranks = meet(tmp_path, plan, patience=240)
    assert all(rank == ranks[0] for rank in ranks)  # values, words and depth
    assert ranks[0]["calls"] == plan.logs  # one collective a log
    (named,) = [line for line in ranks[0]["said"] if line.startswith("rank ")]
    assert named.startswith("rank 5 holds the other ranks up")
    assert "its target is slow" in named.lower()
    for values in ranks[0]["logged"]:
        waits = [values[f"prefetch/wait_s_rank_{rank}"] for rank in range(8)]
        assert max(waits) == waits[5] > sum(waits) / 2
        assert values["prefetch/wait_s"] == pytest.approx(sum(waits))
        assert values["prefetch/wait_imbalance"] == pytest.approx(8 * max(waits) / sum(waits))
        tokens = [values[f"prefetch/tokens_in_flight_rank_{rank}"] for rank in range(8)]
        assert values["prefetch/imbalance"] == pytest.approx(8 * max(tokens) / sum(tokens))
        assert {f"prefetch/queue_depth_{device}" for device in range(8)} <= set(values)


@pytest.fixture(scope="module")
def settings(tmp_path_factory, toy_target):
    store = make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS)
    return {"target": str(toy_target), "store": str(store), "max_epochs": 1, "log_every_n_steps": 2}


def test_two_ranks_log_the_same_and_talk_once_a_log(tmp_path, settings, two_ranks):
    job = "tests.ranks.balance_jobs:fit"
    plain = two_ranks.run(job, root=str(tmp_path / "plain"), balance=None, **settings)
    ours = two_ranks.run(job, root=str(tmp_path / "ours"), balance={}, **settings)
    first, second = ours
    for one, two in zip(first["values"], second["values"], strict=True):
        assert one == pytest.approx(two, nan_ok=True)
    assert first["depths"] == second["depths"]
    logs = len(first["values"])
    assert logs == first["global_step"] // 2 >= 2
    assert [rank["talks"] for rank in ours] == [rank["talks"] + logs for rank in plain]
    for values in first["values"]:
        assert {f"prefetch/queue_depth_{i}" for i in range(6)} <= set(values)
        assert {f"prefetch/imbalance_rank_{rank}" for rank in range(2)} <= set(values)
        shares = [values[f"prefetch/dispatched_bucket_{i}_pct_rank_1"] for i in range(3)]
        assert sum(shares) == pytest.approx(100, rel=1e-4) or np.isnan(shares).all()
        assert values["prefetch/wait_s"] == pytest.approx(
            values["prefetch/wait_s_rank_0"] + values["prefetch/wait_s_rank_1"], rel=1e-5
        )
    rows = [row for row in first["rows"] if "prefetch/depth" in row]
    assert len(rows) == logs
    assert second["rows"] == []
