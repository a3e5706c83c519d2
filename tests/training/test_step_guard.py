"""A step without a finite gradient changes nothing and is written down. On two ranks: tests/ranks."""

import json

import numpy as np
import pytest
import torch

from dflash_lightning.plan.windows import RankBatch, Window
from dflash_lightning.training.step_guard import SkipCounter, offending_batches
from tests.ranks import jobs
from tests.runs import make_store

LENGTHS = np.random.default_rng(5).integers(6, 33, 44).tolist()


def rank_batch(*ids: int) -> RankBatch:
    return RankBatch(np.array(ids), 0, 16)


WINDOW = Window(4, 8, ((rank_batch(1, 2), rank_batch(3)), (rank_batch(4), rank_batch(5, ~1))))
"""Two micro-steps of two ranks."""


@pytest.mark.parametrize(
    ("finite", "named"),
    [
        ([[True, False], [True, True]], [(0, 1, [4])]),  # the micro-batch's own ids
        ([[False, True], [True, False]], [(0, 0, [1, 2]), (1, 1, [5, ~1])]),
        ([[True, True], [True, True]], [(0, 0, [1, 2]), (1, 0, [3]), (0, 1, [4]), (1, 1, [5, ~1])]),
    ],
)
def test_who_to_look_at(finite, named):
    batches = offending_batches(WINDOW, finite)
    assert [(b["rank"], b["micro_step"], b["sample_ids"]) for b in batches] == named


def record(step: int) -> dict:
    return {"step": step, "batches": [{"sample_ids": list(range(10))}]}


def test_the_run_ends_after_so_many_in_a_row(tmp_path):
    path = tmp_path / "logs" / "skipped.jsonl"
    guard = SkipCounter(2)
    guard.skipped(record(1), path, write=True)
    guard.passed()
    guard.skipped(record(3), path, write=True)
    with pytest.raises(
        RuntimeError, match=r"2 optimizer steps in a row .* at step 4 on samples 0, 1, .*, \.\.\."
    ):
        guard.skipped(record(4), path, write=True)
    assert guard.state_dict() == {"total": 3, "in_a_row": 2}
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 3, 4]


def test_a_rank_that_does_not_write_counts_all_the_same(tmp_path):
    guard = SkipCounter(5)
    guard.skipped(record(1), tmp_path / "skipped.jsonl", write=False)
    assert guard.total == 1
    assert not (tmp_path / "skipped.jsonl").exists()


def test_the_count_travels_with_a_checkpoint(tmp_path):
    guard, resumed = SkipCounter(2), SkipCounter(2)
    guard.skipped(record(1), tmp_path / "skipped.jsonl", write=False)
    resumed.load_state_dict(guard.state_dict())
    with pytest.raises(RuntimeError, match="2 optimizer steps in a row"):
        resumed.skipped(record(2), tmp_path / "skipped.jsonl", write=False)


def test_a_limit_of_zero_is_refused():
    with pytest.raises(ValueError, match="max_skipped_steps must be at least 1, got 0"):
        SkipCounter(0)


# --- in a run


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return str(make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS))


def fit(tmp_path, target, store, **options):
    return jobs.fit(str(tmp_path), str(target), store, max_epochs=1, log_every_n_steps=1, **options)


@pytest.mark.slow
def test_a_finite_loss_of_a_hundred_times_the_mean_still_steps(tmp_path, toy_target, store):
    plain = fit(tmp_path / "plain", toy_target, store)
    sharp = fit(tmp_path / "sharp", toy_target, store, plant=(7, "sharp"))
    raised = max(range(len(plain["steps"])), key=lambda i: sharp["steps"][i]["train/loss"])
    usual = np.mean([step["train/loss"] for step in plain["steps"]])
    assert (
        sharp["steps"][raised]["train/loss"] > 25 * usual
    )  # of one of its two micro-batches: above 50 times
    assert not any(step["skipped"] for step in sharp["steps"])
    assert sharp["steps"][-1]["optimizer_steps"] == [len(sharp["steps"])]


def test_a_skipped_step_is_as_if_its_window_had_not_been_there(tmp_path, toy_target, store):
    plain = fit(tmp_path / "plain", toy_target, store)
    third_step = plain["batches"][5]["ids"][0]
    ours = fit(tmp_path / "planted", toy_target, store, plant=(third_step, "nan"))
    steps = ours["steps"]
    (at,) = [i for i, step in enumerate(steps) if step["skipped"]]
    assert at == 2
    assert steps[:2] == plain["steps"][:2]
    assert steps[at]["weights"] == steps[at - 1]["weights"] != steps[at + 1]["weights"]
    assert steps[at]["optimizer_steps"] == steps[at - 1]["optimizer_steps"] == [at]
    assert steps[at]["global_step"] == at + 1
    assert ours["position"]["steps"] == len(steps)
    # The schedule is held: the next step has the rate that the skipped one would have had.
    assert steps[at + 1]["lr"] == pytest.approx(steps[at]["lr"])
    assert all(torch.isfinite(value).all() for value in ours["weights"].values())
    assert all(np.isfinite(jobs.logged(ours["rows"], "train/grad_norm")[at + 1 :]))
