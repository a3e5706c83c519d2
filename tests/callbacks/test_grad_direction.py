"""GradDirection against exact cosines of recorded gradients. On two ranks: tests/ranks."""

import math

import numpy as np
import pytest

from dflash_lightning.callbacks.grad_direction import GradDirection
from dflash_lightning.training.watch.projection import cosine
from tests.ranks import direction_jobs
from tests.runs import make_store

LENGTHS = np.random.default_rng(5).integers(6, 33, 44).tolist()
CLOSE = 0.01
"""Of a cosine: over three standard deviations of the projection's error."""


@pytest.fixture(scope="module")
def store(tmp_path_factory, toy_target):
    return str(make_store(tmp_path_factory.mktemp("store"), toy_target, LENGTHS))


def fit(root, target, store, **options):
    return direction_jobs.fit(str(root), str(target), store, **options)


@pytest.fixture(scope="module")
def each(tmp_path_factory, toy_target, store):
    """Every step compared with the one before, logged every step; micro-batches too."""
    root = tmp_path_factory.mktemp("each")
    direction = {"every_n_steps": 1, "micro": True, "running_pairs": 4}
    return root, fit(root, toy_target, store, direction=direction, accumulate_grad_batches=3, keep=True)


def logged(run, name):
    """{train/step: value} of one metric where it has a value."""
    rows = {int(float(row["train/step"])): float(row[name]) for row in run["rows"] if name in row}
    return {step: value for step, value in rows.items() if not math.isnan(value)}


def exact(run):
    gradients = run["gradients"]
    return [cosine(one, two) for one, two in zip(gradients, gradients[1:], strict=False)]


def test_every_pair_has_its_exact_cosine(each):
    values = logged(each[1], "direction/cosine")
    assert values == pytest.approx(dict(enumerate(exact(each[1]), start=2)), abs=CLOSE)
    assert list(values) == [2, 3, 4]
    assert max(values.values()) - min(values.values()) > 5 * CLOSE  # else any constant would do


def test_the_noise_scale_is_the_running_ratio(each):
    run, signal, noise, expected = each[1], 0.0, 0.0, []
    pairs = zip(run["gradients"], run["gradients"][1:], run["steps"], run["steps"][1:], strict=False)
    for first, second, one, two in pairs:
        signal = 0.75 * signal + 0.25 * float(first.double() @ second.double())
        apart = float((first - second).double().square().sum())
        noise = 0.75 * noise + 0.25 * apart / (1 / one["weight"] + 1 / two["weight"])
        expected.append(noise / signal)
    values = logged(run, "direction/noise_scale")
    assert values == pytest.approx(dict(enumerate(expected, start=2)), rel=0.1)


def test_micro_batches_are_compared_inside_a_window_only(each):
    sums = each[1]["micro"]
    values = logged(each[1], "direction/micro_cosine")
    assert list(values) == [1, 2, 3, 4]
    for step, value in values.items():
        one, two, three = sums[3 * step - 3 : 3 * step]
        expected = (cosine(one, two - one) + cosine(two - one, three - two)) / 2
        assert value == pytest.approx(expected, abs=2 * CLOSE)


def test_a_pair_is_the_step_of_the_interval_and_the_one_before(tmp_path, toy_target, store):
    run = fit(tmp_path, toy_target, store, direction={"every_n_steps": 3}, accumulate_grad_batches=1)
    values = logged(run, "direction/cosine")
    assert list(values) == [3, 6, 9, 12]
    assert values == pytest.approx({step: exact(run)[step - 2] for step in values}, abs=CLOSE)


def test_a_log_covers_all_pairs_since_the_last_one(tmp_path, toy_target, store, each):
    options = {"direction": {"every_n_steps": 1}, "log_every_n_steps": 3, "accumulate_grad_batches": 3}
    run = fit(tmp_path, toy_target, store, **options)
    two, three, _ = logged(each[1], "direction/cosine").values()
    assert logged(run, "direction/cosine") == pytest.approx({3: (two + three) / 2})
    assert logged(run, "direction/cosine_min") == pytest.approx({3: min(two, three)})


def test_a_skipped_step_breaks_its_pairs(tmp_path, toy_target, store, each):
    sample = each[1]["batches"][6]["ids"][0]  # in the fourth of six windows of two batches
    direction = {"every_n_steps": 1, "micro": True}
    run = fit(tmp_path, toy_target, store, direction=direction, plant=(sample, "nan"))
    skipped = [step["skipped"] for step in run["steps"]]
    assert skipped == [False, False, False, True, False, False]
    assert list(logged(run, "direction/cosine")) == [2, 3, 6]
    assert list(logged(run, "direction/micro_cosine")) == [1, 2, 3, 5, 6]


@pytest.mark.slow
@pytest.mark.parametrize("step", [2, 3])
def test_a_resumed_run_logs_the_same(step, tmp_path, toy_target, store):
    """Behind step 3 a sketch waits for step 4; behind step 2 none does."""
    options = {"direction": {"every_n_steps": 4}, "log_every_n_steps": 4, "accumulate_grad_batches": 1}
    whole = fit(tmp_path / "whole", toy_target, store, keep=True, **options)
    ours = fit(
        tmp_path / "rest", toy_target, store, resume=f"{tmp_path}/whole/kept/step={step}.ckpt", **options
    )
    assert ours["rows"] == whole["rows"]
    assert list(logged(ours, "direction/cosine")) == [4, 8, 12]


@pytest.mark.parametrize("name", ["every_n_steps", "running_pairs"])
def test_nothing_can_be_compared_every_zero_steps(name):
    with pytest.raises(ValueError, match=f"GradDirection.{name} must be at least 1, got 0"):
        GradDirection(**{name: 0})
