"""NaN or Inf in one rank's micro-batch: all ranks skip the step together (design.md 4; field.md 26)."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.runs import make_store

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

LENGTHS = np.random.default_rng(5).integers(6, 33, 44).tolist()


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return str(make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS))


def fit(two_ranks, root, target, store, **options):
    return two_ranks.run(
        "tests.ranks.jobs:fit",
        root=str(root),
        target=str(target),
        store=store,
        max_epochs=1,
        log_every_n_steps=1,
        **options,
    )


def written(rank) -> list[dict]:
    return [
        json.loads(line) for line in (Path(rank["log_dir"]) / "skipped_steps.jsonl").read_text().splitlines()
    ]


@pytest.mark.parametrize("kind", ["nan", "inf"])
def test_a_bad_micro_batch_of_one_rank_changes_no_weight_anywhere(
    kind, tmp_path, toy_target, store, two_ranks
):
    ours = fit(two_ranks, tmp_path, toy_target, store, plant=(7, kind))
    (owner,) = [r for r, rank in enumerate(ours) if any(7 in batch["ids"] for batch in rank["batches"])]
    (line,) = written(ours[0])
    (named,) = line["batches"]
    assert named["rank"] == owner
    assert not named["loss_is_finite"]
    assert named["sample_ids"] == next(b["ids"] for b in ours[owner]["batches"] if 7 in b["ids"])

    for rank in ours:
        steps = rank["steps"]
        (at,) = [i for i, step in enumerate(steps) if step["skipped"]]
        assert line["step"] == at + 1
        before = steps[at - 1] if at else {"optimizer_steps": [], "weights": None}
        assert steps[at]["optimizer_steps"] == before["optimizer_steps"]
        assert at == 0 or steps[at]["weights"] == before["weights"]
        assert steps[at]["global_step"] == at + 1
        assert rank["position"]["steps"] == len(steps) == rank["global_step"]
        assert at + 1 == len(steps) or steps[at + 1]["lr"] == pytest.approx(steps[at]["lr"])
        assert rank["skipped"] == {"total": 1, "in_a_row": int(at + 1 == len(steps))}
        assert all(torch.isfinite(value).all() for value in rank["weights"].values())
    assert [s["weights"] for s in ours[0]["steps"]] == [s["weights"] for s in ours[1]["steps"]]


def test_where_every_loss_is_a_number_the_whole_window_is_named(tmp_path, toy_target, store, two_ranks):
    ours = fit(two_ranks, tmp_path, toy_target, store, big_gradient=1, module={"max_skipped_steps": 100})
    assert {step["skipped"] for rank in ours for step in rank["steps"]} == {True}
    first = written(ours[0])[0]["batches"]
    assert {batch["rank"] for batch in first} == {0, 1}
    for r, rank in enumerate(ours):
        theirs = [batch["sample_ids"] for batch in first if batch["rank"] == r]
        assert theirs == [batch["ids"] for batch in rank["batches"][: len(theirs)]]
        assert rank["steps"][-1]["optimizer_steps"] == []


def test_too_many_in_a_row_end_the_run_on_all_ranks(tmp_path, toy_target, store, two_ranks):
    ours = fit(two_ranks, tmp_path, toy_target, store, big_gradient=0, module={"max_skipped_steps": 2})
    for rank in ours:
        assert "2 optimizer steps in a row had no finite gradient, the last one at step 2" in rank["error"]
        assert rank["position"]["steps"] == 2
        assert rank["skipped"] == {"total": 2, "in_a_row": 2}
    assert len(written(ours[0])) == 2


def test_a_finite_loss_of_a_hundred_times_the_mean_still_steps(tmp_path, toy_target, store, two_ranks):
    for rank in fit(two_ranks, tmp_path, toy_target, store, plant=(7, "sharp")):
        losses = [step["train/loss"] for step in rank["steps"]]
        assert max(losses) > 10 * np.median(losses)
        assert not any(step["skipped"] for step in rank["steps"])
