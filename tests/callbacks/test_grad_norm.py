"""GradNorm logs what each step did, over all steps since the last log. On two ranks: tests/ranks."""

import math
from pathlib import Path

import numpy as np
import pytest

from dflash_lightning.callbacks.grad_norm import GradNorm
from dflash_lightning.training.watch.norm_totals import group_of
from tests.ranks import jobs
from tests.runs import make_store, toy_data, toy_module, toy_trainer

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


def test_the_running_mean_forgets_and_starts_without_a_bias(tmp_path, toy_target, store):
    callbacks = [GradNorm(running_steps=3, groups=True)]
    trainer = toy_trainer(tmp_path, callbacks=callbacks, max_epochs=1, log_every_n_steps=1)
    trainer.fit(toy_module(toy_target), toy_data(store))
    rows = jobs.read_rows(Path(trainer.log_dir))
    norms, running = (jobs.logged(rows, f"train/grad_norm{name}") for name in ("", "_running"))
    for number in range(1, len(norms) + 1):
        weights = [(2 / 3) ** age for age in reversed(range(number))]
        expected = sum(w * norm for w, norm in zip(weights, norms[:number], strict=True)) / sum(weights)
        assert running[number - 1] == pytest.approx(expected)
    assert len(norms) >= 4
    assert running[0] == norms[0]
    # The groups' squares add up: nothing is counted twice or left out.
    names = ["layer_0", "layer_1", "fc", "norms"]
    groups = [jobs.logged(rows, f"grad_norm/{name}") for name in names]
    for norm, *parts in zip(norms, *groups, strict=True):
        assert math.sqrt(sum(part**2 for part in parts)) == pytest.approx(norm, rel=1e-5)
    assert {name for name in rows[0] if name.startswith("grad_norm/")} == {f"grad_norm/{n}" for n in names}


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("layers.0.self_attn.q_proj.weight", "layer_0"),
        ("layers.11.input_layernorm.weight", "layer_11"),  # a layer's norms belong to the layer
        ("norm.weight", "norms"),
        ("hidden_norm.weight", "norms"),
        ("fc.weight", "fc"),
    ],
)
def test_a_parameter_belongs_to_one_group(name, group):
    assert group_of(name) == group


def test_group_norms_are_means_over_the_steps_since_the_last_log(tmp_path, toy_target, store):
    runs = {}
    for every in (1, 2):
        callbacks = [GradNorm(groups=True)]
        trainer = toy_trainer(
            tmp_path / str(every), callbacks=callbacks, max_epochs=1, log_every_n_steps=every
        )
        trainer.fit(toy_module(toy_target), toy_data(store))
        runs[every] = jobs.logged(jobs.read_rows(Path(trainer.log_dir)), "grad_norm/fc")
    means = [(one + two) / 2 for one, two in zip(runs[1][::2], runs[1][1::2], strict=False)]
    assert runs[2] == pytest.approx(means)


def test_a_mean_over_no_steps_is_refused():
    with pytest.raises(ValueError, match="GradNorm.running_steps must be at least 1, got 0"):
        GradNorm(running_steps=0)


@pytest.mark.slow
def test_a_resumed_run_logs_the_same(tmp_path, toy_target, store):
    whole = fit(tmp_path / "whole", toy_target, store)
    ours = fit(tmp_path / "rest", toy_target, store, resume=str(tmp_path / "whole" / "kept" / "step=3.ckpt"))
    assert ours["rows"] == [row for row in whole["rows"] if int(row["step"]) >= 3]
    assert jobs.logged(ours["rows"], "train/grad_norm")
