"""Flags over YAML over defaults."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dflash_lightning.lightning_cli import read_config
from dflash_lightning.plan import (
    Credit,
    DiversityFirst,
    MixedBuckets,
    PlanConfig,
    PoolSorted,
    RandomOrder,
    Shuffle,
    WindowFirst,
)
from dflash_lightning.plan_view.model_settings import ModelSettings
from dflash_lightning.plan_view.settings import PlanSettings, load_samples, parse_edges, with_flags
from dflash_lightning.plan_view.yaml_settings import count_devices, model_settings

ROOT = Path(__file__).parents[2]

YAML = PlanSettings(
    plan=PlanConfig(edges=(100, 200), max_tokens=400, max_rows=3),
    seed=5,
    world=4,
    accumulate=2,
    model=ModelSettings(target="big", head_chunk=7),
    notes=("devices were assumed",),
)


def test_flags_that_were_not_given_change_nothing():
    assert with_flags(YAML, {"lengths": "x.npy", "format": "text"}) == YAML
    assert with_flags(YAML, {"seed": None, "edges": None, "static_shapes": False}) == YAML


@pytest.mark.parametrize(
    ("flag", "value", "field", "expected"),
    [
        ("edges", "50,300", "edges", (50, 300)),
        ("edges", "optimal", "edges", "optimal"),
        ("num_buckets", 3, "num_buckets", 3),
        ("max_tokens", 500, "max_tokens", 500),
        ("max_rows", 9, "max_rows", 9),
        ("max_block_tokens", 0, "max_block_tokens", 0),  # 0 is a value: off
        ("pad_multiple", 4, "pad_multiple", 4),
        ("super_buckets", 1, "super_buckets", 1),
        ("min_length", 20, "min_length", 20),
        ("quadratic_budget", 1e6, "quadratic_budget", 1e6),
        ("quadratic_length", 100.0, "quadratic_length", 100.0),
        ("block_cost", 0.0, "block_cost", 0.0),
        ("oversize", "drop", "oversize", "drop"),
        ("tail", "drop", "tail", "drop"),
        ("static_shapes", True, "static_shapes", True),
        ("order", "diversity_first", "order", DiversityFirst()),
        ("packing", "random_order", "packing", RandomOrder()),
        ("packing", "window_first", "packing", WindowFirst(window_batches=8)),  # 4 ranks x 2
    ],
)
def test_a_flag_of_the_plan_wins_over_the_yaml(flag, value, field, expected):
    settings = with_flags(YAML, {flag: value})
    assert getattr(settings.plan, field) == expected
    assert settings.plan.max_rows == (9 if flag == "max_rows" else 3)  # the rest stays
    assert settings.plan.order == (expected if flag == "order" else Credit())


@pytest.mark.parametrize(
    ("flag", "field"),
    [(n, n) for n in ("num_anchors", "block_size", "seed", "epoch", "accumulate", "max_epochs", "max_steps")]
    + [("world_size", "world")],
)
def test_a_flag_of_the_run_wins_over_the_yaml(flag, field):
    assert getattr(with_flags(YAML, {flag: 11}), field) == 11


def test_a_stated_world_size_needs_no_assumption():
    assert with_flags(YAML, {"world_size": 2}).notes == ()
    assert with_flags(YAML, {"accumulate": 2}).notes == YAML.notes


def test_another_target_keeps_the_settings_of_the_model():
    assert with_flags(YAML, {"target": "small"}).model == ModelSettings(target="small", head_chunk=7)
    assert with_flags(PlanSettings(), {"target": "small"}).model == ModelSettings(target="small")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"world_size": 0}, "--world-size must be at least 1, got 0"),
        ({"accumulate": -2}, "--accumulate must be at least 1, got -2"),
        ({"num_anchors": 0}, "--num-anchors must be at least 1, got 0"),
        ({"block_size": 1}, "--block-size must be at least 2, got 1"),
        ({"epoch": -1}, "--epoch must be at least 0, got -1"),
        ({"max_epochs": -2}, "--max-epochs must be at least 0, or -1 for no limit, got -2"),
        ({"max_steps": -2}, "--max-steps must be at least 0, or -1 for no limit, got -2"),
        ({"packing": "window_first", "order": "shuffle"}, "so plan.order Shuffle would not apply"),
        ({"max_rows": 0}, "plan.max_rows must be at least 1, got 0"),
        (
            {"edges": "9,x"},
            "--edges is a list of tokens like 1024,2048,8192, or quantile, or optimal; got '9,x'",
        ),
        ({"edges": "9,5"}, r"plan.edges must be positive and strictly increasing, got \(9, 5\)"),
        ({"order": "best"}, "no order named 'best'; choose one of credit, diversity_first, shuffle"),
        ({"packing": "best"}, "no packing named 'best'"),
    ],
)
def test_what_no_run_is_like_is_refused(flags, message):
    with pytest.raises(ValueError, match=message):
        with_flags(YAML, flags)


def test_a_run_without_end_is_said_as_in_yaml():
    assert with_flags(replace(YAML, max_epochs=6), {"max_epochs": -1}).max_epochs is None


def test_flags_are_taken_at_once():
    """Neither of two flags makes sense alone on top of this YAML; both together do."""
    mixed = replace(YAML, plan=replace(YAML.plan, packing=MixedBuckets()))
    plan = with_flags(mixed, {"static_shapes": True, "packing": "pool_sorted"}).plan
    assert (plan.static_shapes, plan.packing) == (True, PoolSorted())
    shuffled = replace(YAML, plan=replace(YAML.plan, order=Shuffle()))
    assert with_flags(shuffled, {"packing": "window_first"}).plan.order == Credit()


@pytest.mark.parametrize("text", ["1,2,30", "[1, 2, 30]", "(1,2,30)"])
def test_edges_may_be_written_as_in_yaml(text):
    assert parse_edges(text) == (1, 2, 30)


@pytest.mark.parametrize(
    ("devices", "count"),
    [(4, 4), ("4", 4), ([0, 1], 2), ("0,1,2", 3), ("0,", 1), (["cuda:0"], 1)],
)
def test_devices_are_counted_as_lightning_counts_them(devices, count):
    assert count_devices(devices) == (count, ())


@pytest.mark.parametrize("devices", ["auto", -1, "-1"])
def test_devices_that_depend_on_the_machine_are_assumed_and_said(devices):
    count, notes = count_devices(devices)
    assert count == 1
    assert notes == (
        f"trainer.devices is {devices}: planned for 1 device a node; --world-size says otherwise",
    )


def test_lengths_stand_for_the_store_and_say_where_they_come_from(tmp_path):
    path = str(tmp_path / "lengths.npy")
    np.save(path, np.array([10, 20]))
    samples, source = load_samples(PlanSettings(store="nowhere"), lengths=path, supervised="0.5")
    assert samples.supervised.tolist() == [5, 10]
    assert source == f"{path}, 50% of tokens supervised"
    np.save(tmp_path / "counts.npy", np.array([1, 2]))
    counts = str(tmp_path / "counts.npy")
    samples, source = load_samples(PlanSettings(), lengths=path, supervised=counts)
    assert samples.supervised.tolist() == [1, 2]
    assert source == f"{path}, supervised counts from {counts}"


def test_nothing_to_plan_is_said():
    with pytest.raises(ValueError, match="nothing to plan: give --lengths file.npy, or --config"):
        load_samples(PlanSettings(), lengths=None, supervised=None)


@pytest.mark.slow
@pytest.mark.parametrize(("fragment", "ranks"), [("one_node_8gpus", 1), ("sharded_target", 8)])
def test_ranks_that_hold_a_target_together_are_the_devices_of_a_node(fragment, ranks):
    words = [f"--config={ROOT}/configs/qwen3_8b.yaml", f"--config={ROOT}/configs/launch/{fragment}.yaml"]
    assert model_settings(read_config(words)).target_ranks == ranks
