"""The documented metrics are equal on one and two ranks, and count no ghost (field.md 23 to 25)."""

from dataclasses import replace

import numpy as np
import pytest

from tests.callbacks.recount import bucket_mix, in_windows, plan_shares
from tests.callbacks.recount_lines import by_step, losses, mix_pct
from tests.ranks import jobs
from tests.runs import PLAN, last_two_thirds, make_store, make_store_of

pytestmark = [pytest.mark.ranks, pytest.mark.slow]


def runs(tmp_path, target, two_ranks, lengths, **options):
    """One process with four micro-batches a step, and two ranks with two: the same windows."""
    store = str(make_store(tmp_path / "store", target, lengths))
    settings = {"target": str(target), "store": store, "max_epochs": 1, "log_every_n_steps": 1} | options
    alone = jobs.fit(str(tmp_path / "one"), accumulate_grad_batches=4, **settings)
    ours = two_ranks.run("tests.ranks.jobs:fit", root=str(tmp_path / "two"), **settings)
    return alone, ours


def test_two_ranks_log_what_one_logs(tmp_path, toy_target, two_ranks):
    lengths = np.random.default_rng(5).integers(6, 33, 61).tolist()
    alone, ours = runs(tmp_path, toy_target, two_ranks, lengths)
    windows = in_windows([rank["batches"] for rank in ours], 2)
    rows = [row for row in ours[0]["rows"] if row.get("batch/batch_size")]
    assert len(rows) == len(windows) >= 4
    plan = plan_shares(lengths)
    for number, row in enumerate(rows, start=1):
        expected = bucket_mix(windows, upto=number, every=1, recent=3, plan=plan)
        assert {n: float(v) for n, v in row.items() if n.startswith("batch/")} == pytest.approx(expected)
    for name in ("batch/bucket_0_pct", "batch/avg_seq_len", "batch/padding_efficiency", "train/tokens"):
        assert jobs.logged(ours[0]["rows"], name) == jobs.logged(alone["rows"], name), name
    for name in ("train/grad_norm", "train/loss", "train/lr"):
        assert jobs.logged(ours[0]["rows"], name) == pytest.approx(
            jobs.logged(alone["rows"], name), rel=1e-3
        ), name
    assert ours[1]["rows"] == []


def test_a_ghost_row_is_no_sample(tmp_path, toy_target, two_ranks):
    """Three batches of one row leave one rank's last turn empty."""
    plan = replace(PLAN, max_rows=1)
    _, ours = runs(tmp_path, toy_target, two_ranks, [30, 31, 32], data={"plan": plan})
    ghosts = [i for rank in ours for batch in rank["batches"] for i in batch["ids"] if i < 0]
    assert len(ghosts) == 1
    totals = [float(row["train/tokens"]) for row in ours[0]["rows"] if row.get("train/tokens")]
    assert totals[-1] == 30 + 31 + 32
    assert all(
        float(row["batch/padding_efficiency"]) > 0.9 for row in ours[0]["rows"] if row.get("train/tokens")
    )


def uneven_rows():
    """Rows of 61 lengths; of every third row only the last two tokens are supervised."""
    lengths = np.random.default_rng(5).integers(6, 33, 61).tolist()
    return [(n, range(n - 2, n)) if i % 3 == 0 else last_two_thirds(n) for i, n in enumerate(lengths)]


@pytest.fixture(scope="module")
def watched(tmp_path_factory, toy_target, two_ranks):
    """One process with accumulation 8, two ranks with 4, unequal supervision, every callback that watches."""
    root = tmp_path_factory.mktemp("watched")
    store = str(make_store_of(root / "store", toy_target, uneven_rows()))
    plan = replace(PLAN, max_rows=2)
    settings = {"target": str(toy_target), "store": store, "max_epochs": 2, "log_every_n_steps": 2}
    settings |= {"data": {"plan": plan}, "observe": True, "module": {"lr": 3e-4}}
    alone = jobs.fit(str(root / "one"), accumulate_grad_batches=8, **settings)
    ours = two_ranks.run(
        "tests.ranks.jobs:fit", root=str(root / "two"), accumulate_grad_batches=4, timeout=240, **settings
    )
    return alone, ours


def test_supervision_is_unequal(watched):
    weights = [[line["weight"] for line in rank["micro"] if line["step"] == 1] for rank in watched[1]]
    assert [len(ours) for ours in weights] == [4, 4]
    pairs = np.array(weights).T
    assert (pairs.max(axis=1) > 1.2 * pairs.min(axis=1)).sum() >= 2


def test_every_value_by_bucket_is_the_recount_over_both_ranks(watched):
    steps = by_step([rank["micro"] for rank in watched[1]])
    rows = [row for row in watched[1][0]["rows"] if "train/step" in row]
    assert len(rows) == len(steps) // 2 >= 4
    prefixes = ("loss/", "acceptance/", "train/loss", "train/accuracy", "train/tau")
    for row in rows:
        upto = int(float(row["train/step"]))
        ours = {name: float(value) for name, value in row.items() if name.startswith(prefixes)}
        assert ours.pop("loss/out_of_band") == 0
        expected = mix_pct(steps, upto=upto, every=2, buckets=3, half_life=16.0)
        assert ours.pop("loss/mix_pct") == pytest.approx(expected, rel=1e-6)
        assert ours == pytest.approx(losses(steps, upto=upto, every=2, buckets=3), rel=1e-6, nan_ok=True)


def test_two_ranks_with_accumulation_log_what_one_process_logs(watched):
    alone, ours = watched
    theirs, mine = (jobs.without_times(run["rows"]) for run in (alone, ours[0]))
    assert len(theirs) == len(mine) >= 4
    counted = ("batch/", "guard/", "train/step", "train/tokens", "epoch", "step")
    for one, two in zip(theirs, mine, strict=True):
        assert one.keys() == two.keys()
        for name in one:
            if name.startswith(counted):
                assert float(one[name]) == pytest.approx(float(two[name]), rel=1e-9), name
            elif not name.startswith("loss/mix_pct"):  # a difference of differences: rounding shows
                assert float(one[name]) == pytest.approx(float(two[name]), rel=2e-3, nan_ok=True), name
        assert float(one.get("loss/mix_pct", 0)) == pytest.approx(
            float(two.get("loss/mix_pct", 0)), abs=0.5, nan_ok=True
        )


def test_the_lines_of_both_ranks_are_those_of_one(watched):
    alone, ours = watched

    def facts(ranks):
        lines = [line for lines in by_step(ranks).values() for line in lines]
        return sorted(
            (x["step"], x["bucket"], x["samples"], x["seq_len"], x["tokens"], x["supervised"]) for x in lines
        )

    assert facts([rank["micro"] for rank in ours]) == facts([alone["micro"]])
    assert {line["rank"] for line in ours[1]["micro"]} == {1}


def test_throughput_counts_both_ranks(watched):
    for run in (watched[0], watched[1][0]):
        ranks = [rank["micro"] for rank in (watched[1] if run is not watched[0] else [watched[0]])]
        steps = by_step(ranks)
        for row in (row for row in run["rows"] if "train/step" in row):
            upto, seconds = int(float(row["train/step"])), 2 * float(row["throughput/step_s"])
            tokens = sum(line["tokens"] for step in (upto - 1, upto) for line in steps[step])
            assert float(row["throughput/tokens_per_s"]) * seconds == pytest.approx(tokens, rel=1e-4)
