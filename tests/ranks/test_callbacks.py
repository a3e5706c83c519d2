"""The documented metrics are equal on one and two ranks, and count no ghost (field.md 23 to 25)."""

from dataclasses import replace

import numpy as np
import pytest

from tests.callbacks.recount import bucket_mix, in_windows, plan_shares
from tests.ranks import jobs
from tests.runs import PLAN, make_store

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
    for number, row in enumerate(rows, start=1):
        expected = bucket_mix(windows, upto=number, every=1, recent=3, plan=plan_shares(lengths))
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
