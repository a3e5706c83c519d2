"""GradNorm logs what each step did, over all steps since the last log. On two ranks: tests/ranks."""

import math

import numpy as np
import pytest

from tests.ranks import jobs
from tests.runs import make_store

LENGTHS = np.random.default_rng(5).integers(6, 33, 44).tolist()


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return str(make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS))


def fit(root, target, store, **options):
    settings = {"max_epochs": 1, "log_every_n_steps": 2, "keep": True, **options}
    return jobs.fit(str(root), str(target), store, **settings)


def clip_between(norms):
    """A limit that clips some steps and not others."""
    return float(np.median(norms))


def test_values_are_means_over_the_steps_since_the_last_log(tmp_path, toy_target, store):
    # Without a rate of note the norms do not depend on clipping.
    free = fit(tmp_path / "free", toy_target, store, module={"lr": 1e-12}, gradient_clip_val=None)
    limit = clip_between([step["norm"] for step in free["steps"]])
    ours = fit(tmp_path / "clipped", toy_target, store, module={"lr": 1e-12}, gradient_clip_val=limit)
    norms = [
        math.sqrt(sum(float(g.double().square().sum()) for g in step.values())) for step in free["gradients"]
    ]
    clipped = [
        math.sqrt(sum(float(g.double().square().sum()) for g in step.values())) for step in ours["gradients"]
    ]
    assert max(clipped) <= limit * (1 + 1e-6) < max(norms)
    pairs = list(zip(norms[::2], norms[1::2], strict=False))
    means = [(a + b) / 2 for a, b in pairs]
    assert jobs.logged(ours["rows"], "train/grad_norm") == pytest.approx(means, rel=1e-5)  # before clipping
    percent = [50.0 * ((a > limit) + (b > limit)) for a, b in pairs]
    assert jobs.logged(ours["rows"], "train/clipped_pct") == pytest.approx(percent)
    assert len(set(percent)) > 1


def test_a_skipped_step_is_in_neither_value(tmp_path, toy_target, store):
    ours = fit(tmp_path, toy_target, store, plant=(7, "nan"), log_every_n_steps=100)
    assert sum(step["skipped"] for step in ours["steps"]) == 1
    every = fit(tmp_path / "each", toy_target, store, plant=(7, "nan"), log_every_n_steps=1)
    at = next(i for i, step in enumerate(every["steps"]) if step["skipped"])
    values = [float(row["train/grad_norm"]) for row in every["rows"] if row.get("train/grad_norm")]
    assert [math.isnan(value) for value in values] == [i == at for i in range(len(values))]


def test_a_resumed_run_logs_the_same(tmp_path, toy_target, store):
    whole = fit(tmp_path / "whole", toy_target, store)
    ours = fit(tmp_path / "rest", toy_target, store, resume=str(tmp_path / "whole" / "kept" / "step=3.ckpt"))
    assert ours["rows"] == [row for row in whole["rows"] if int(row["step"]) >= 3]
    assert jobs.logged(ours["rows"], "train/grad_norm")
