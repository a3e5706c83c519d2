"""BucketMix against a recount of what was trained on. On two ranks: tests/ranks."""

import csv
from pathlib import Path

import numpy as np
import pytest

from dflash_lightning.callbacks.bucket_mix import BucketMix
from tests.callbacks.recount import bucket_mix, in_windows, plan_shares
from tests.ranks import jobs
from tests.runs import PLAN, make_store

LENGTHS = np.random.default_rng(5).integers(6, 33, 44).tolist()


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return str(make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS))


@pytest.fixture(scope="module")
def run(tmp_path_factory, toy_target, store):
    root = str(tmp_path_factory.mktemp("run"))
    return root, jobs.fit(root, str(toy_target), store, max_epochs=1, log_every_n_steps=2, keep=True)


def logged_rows(run):
    return [row for row in run["rows"] if row.get("batch/batch_size")]


def test_every_value_is_the_recount(run):
    windows = in_windows([run[1]["batches"]], 2)
    rows = logged_rows(run[1])
    assert len(rows) == len(windows) // 2 >= 3
    for number, row in enumerate(rows, start=1):
        expected = bucket_mix(windows, upto=2 * number, every=2, recent=3, plan=plan_shares(LENGTHS))
        ours = {name: float(value) for name, value in row.items() if name.startswith("batch/")}
        assert ours == pytest.approx(expected)


def test_the_names_are_the_documented_ones(run):
    names = {"avg_seq_len", "max_seq_len", "batch_size", "padding_efficiency", "mix_distance"}
    names |= {
        f"bucket_{i}{kind}_pct{total}"
        for i in range(3)
        for kind in ("", "_samples", "_tokens")
        for total in ("", "_total")
    }
    assert {f"batch/{name}" for name in names} == {
        n for n in logged_rows(run[1])[0] if n.startswith("batch/")
    }


def test_shares_sum_to_a_hundred(run):
    for row in logged_rows(run[1]):
        assert sum(float(row[f"batch/bucket_{i}_pct"]) for i in range(3)) == pytest.approx(100)
        assert sum(float(row[f"batch/bucket_{i}_tokens_pct_total"]) for i in range(3)) == pytest.approx(100)


@pytest.mark.parametrize("step", [3, 4])
def test_a_resumed_run_counts_on(step, run, tmp_path, toy_target, store):
    """Step 3 lies between two logs, and the window of three steps reaches back behind both."""
    root, whole = run
    ours = jobs.fit(
        str(tmp_path),
        str(toy_target),
        store,
        max_epochs=1,
        log_every_n_steps=2,
        keep=True,
        resume=f"{root}/kept/step={step}.ckpt",
    )
    assert ours["rows"] == [row for row in whole["rows"] if int(row["step"]) >= step]


def test_an_epoch_ends_with_its_mix_beside_the_plans(run):
    folder = Path(run[1]["log_dir"])
    table = list(csv.DictReader((folder / "tables/bucket_mix_table-0.csv").read_text().splitlines()))
    labels = [batch["bucket"] for batch in run[1]["batches"]]
    for bucket, (row, planned) in enumerate(zip(table, plan_shares(LENGTHS), strict=True)):
        assert float(row["batches_pct"]) == pytest.approx(100 * labels.count(bucket) / len(labels))
        assert float(row["plan_pct"]) == pytest.approx(100 * planned)
        assert float(row["longest"]) == PLAN.edges[bucket]
    assert (folder / "pictures/bucket_mix_picture-0.png").read_bytes().startswith(b"\x89PNG")


def test_a_resumed_epoch_is_shown_whole(run, tmp_path, toy_target, store):
    root, whole = run
    kept = f"{root}/kept/step=4.ckpt"
    ours = jobs.fit(str(tmp_path), str(toy_target), store, max_epochs=1, resume=kept)
    first, second = (Path(r["log_dir"]) / "tables/bucket_mix_table-0.csv" for r in (whole, ours))
    assert first.read_text() == second.read_text()


def test_a_window_of_no_steps_is_refused():
    with pytest.raises(ValueError, match="window_steps must be at least 1, got 0"):
        BucketMix(window_steps=0)
