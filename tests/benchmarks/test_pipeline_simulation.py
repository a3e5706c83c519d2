"""The simulation of the pipeline still runs, and its parts without a clock say what they should."""

import json

import pytest

from benchmarks.pipeline.__main__ import verdict
from benchmarks.pipeline.costs import Costs, draw
from benchmarks.pipeline.promises import broken, plain_share
from benchmarks.pipeline.queues import Feeding, simulate
from benchmarks.pipeline.real import Setting, limit, run
from benchmarks.pipeline.studies import Effort, lock_shares, policy
from benchmarks.pipeline.tables import table

WAY = ("least_loaded", "ready_first")


def test_mean_costs_are_those_asked_for_and_ranks_share_sizes():
    costs = Costs(target=6.0, drafter=2.0)
    first, second = draw(costs, 50, 3), draw(costs, 50, 3, rank=1)
    assert sum(batch.target for batch in first) / 50 == pytest.approx(6)
    assert sum(batch.drafter for batch in first) / 50 == pytest.approx(2)
    assert [batch.tokens for batch in first] == [batch.tokens for batch in second]
    assert [batch.target for batch in first] != [batch.target for batch in second]


@pytest.mark.parametrize(
    ("targets", "ranks", "slow", "expected"),
    [(1, 1, 1.0, 1 / 3), (4, 1, 1.0, 1), (3, 2, 1.0, 2), (0, 8, 1.0, 2), (3, 1, 2.0, 2.5 / 3)],
)
def test_the_analytic_limit(targets, ranks, slow, expected):
    setting = Setting(policy=policy(WAY, 2), targets=targets, ranks=ranks, slow=slow)
    assert limit(setting, 3.0, 1.0) == pytest.approx(expected)


@pytest.mark.parametrize(("targets", "ranks"), [(3, 2), (0, 2)])
def test_a_run_of_the_real_pipeline(targets, ranks):
    setting = Setting(policy=policy(WAY, 1), targets=targets, ranks=ranks)
    found = run(setting, batches=24, unit=0.001, seed=0)
    assert found.efficiency > 0
    assert 0 <= found.head_of_line <= found.waiting < 1
    assert found.imbalance >= 1
    assert "of limit" in table("splits", {("6 + 2", "3"): found})[1]


def test_too_few_batches_are_refused():
    with pytest.raises(ValueError, match="take at least 21"):
        run(Setting(policy=policy(WAY, 1)), batches=9, unit=0.001, seed=0)


def test_counters_of_their_own_deal_apart_and_deep_queues_drift():
    def drift(dealing, depth):
        return simulate(Feeding(dealing=dealing, depth=depth), batches=1500, seed=1)

    assert drift("own counters", 50).spread == 4  # as many as there are feeders
    assert drift("round_robin", 50).spread == 1
    assert max(drift("own counters", 50).apart) > 10
    assert max(drift("round_robin", 2).apart) <= 2
    assert max(drift("least_loaded", 50).apart) < max(drift("round_robin", 50).apart)


def test_measured_costs_are_read_and_others_refused(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"target": 0.9, "drafter": 0.3}))
    assert Costs.read(path) == Costs(target=0.9, drafter=0.3)
    path.write_text(json.dumps({"targets": 1}))
    with pytest.raises(ValueError, match=r"unknown costs \['targets'\]"):
        Costs.read(path)


LIMIT = "reaches {} of the limit, in the better of 2 runs; it must be at least 0.95"
LOCK = "dealing to {} devices costs {} of a step; it must stay below 0.1%"


@pytest.mark.parametrize(
    ("shares", "locks", "runs", "said"),
    [
        ([0.99], {1: 0.0001}, 1, []),
        ([0.95], {}, 1, []),
        ([0.90, 0.97], {1: 0.0001, 3: 0.0009}, 2, []),  # a busy machine the first time
        ([0.90, 0.94], {}, 2, [LIMIT.format("0.940")]),
        ([0.949, 0.5], {1: 0.001}, 2, [LOCK.format(1, "0.1000%"), LIMIT.format("0.949")]),
        (None, {1: 0.0001, 3: 0.002}, 0, [LOCK.format(3, "0.2000%")]),  # studies that were not asked for
        (None, {}, 0, []),
    ],
)
def test_a_promise_that_is_not_kept_is_said_and_exits_1(shares, locks, runs, said, capsys):
    left = list(shares or [])
    lines = broken(None if shares is None else lambda: left.pop(0), locks)
    assert len(shares or []) - len(left) == runs
    assert verdict(lines) == (1 if said else 0)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(said)
    for line, words in zip(told, said, strict=True):
        assert line.startswith("not kept: ")
        assert words in line


def test_the_plain_case_has_no_jitter_and_is_run_for_real():
    assert plain_share(Costs(), Effort(batches=48, unit=0.001)) > 0


@pytest.mark.slow
def test_the_locks_share_is_told():
    assert set(lock_shares((1, 3))) == {1, 3}
