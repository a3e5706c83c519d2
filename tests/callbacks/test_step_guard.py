"""The callback that counts skipped steps. Skipping itself: tests/training/test_step_guard.py."""

import pytest

from tests.ranks import jobs


def fit(tmp_path, toy_target, store, **options):
    settings = {"max_epochs": 1, "observe": True, "keep": True, **options}
    return jobs.fit(str(tmp_path), str(toy_target), store, **settings)


def test_counts_are_since_the_run_began_and_rows_since_the_last_log(
    tmp_path, toy_target, observed_store, said
):
    many = {"big_gradient": 0, "module": {"max_skipped_steps": 100}}
    ours = fit(tmp_path, toy_target, observed_store, log_every_n_steps=2, **many)
    assert jobs.logged(ours["rows"], "guard/skipped_steps") == [2, 4, 6]
    assert jobs.logged(ours["rows"], "guard/skipped_in_a_row") == [2, 4, 6]
    assert "train/loss" not in ours["rows"][0] or ours["rows"][0]["train/loss"] == "nan"
    path = f"{ours['log_dir']}/skipped_steps.jsonl"
    assert f"6 optimizer steps had no finite gradient and were skipped: see {path}" in said.texts
    (words,) = said.beginning("loss in epoch")
    assert "instability: 6 steps had no finite gradient" in words


@pytest.mark.parametrize("every", [1, 3])
def test_one_skipped_step_is_seen_at_any_interval(every, tmp_path, toy_target, observed_store):
    ours = fit(tmp_path, toy_target, observed_store, log_every_n_steps=every, plant=(7, "nan"))
    (at,) = [step["step"] for step in ours["steps"] if step["skipped"]]
    ends = range(every, 7, every)
    assert jobs.logged(ours["rows"], "guard/skipped_steps") == [float(end >= at) for end in ends]
    rows = [float(end - every < at <= end) for end in ends]
    assert jobs.logged(ours["rows"], "guard/skipped_in_a_row") == rows
    assert sum(rows) == 1


def test_a_run_without_skipped_steps_counts_none(observed):
    assert set(jobs.logged(observed[1]["rows"], "guard/skipped_steps")) == {0.0}
    assert set(jobs.logged(observed[1]["rows"], "guard/skipped_in_a_row")) == {0.0}
