"""Strategies by name."""

from dataclasses import replace

import pytest

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
from dflash_lightning.plan_view.names import NAMES, packing_of, with_strategy

PLAN = PlanConfig(edges=(100, 200), max_tokens=400)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("credit", {"order": Credit()}),
        ("diversity_first", {"order": DiversityFirst()}),
        ("shuffle", {"order": Shuffle()}),
        ("pool_sorted", {"packing": PoolSorted()}),
        ("random_order", {"packing": RandomOrder()}),
        ("mixed_buckets", {"packing": MixedBuckets()}),
        ("window_first:4", {"packing": WindowFirst(window_batches=4)}),
        ("window_first", {"packing": WindowFirst(window_batches=7)}),  # the run's own window
        ("edges=optimal", {"edges": "optimal"}),
        ("edges=quantile", {"edges": "quantile"}),
        ("super_buckets:1", {"super_buckets": 1}),
        ("diversity_first+random_order", {"order": DiversityFirst(), "packing": RandomOrder()}),
        ("shuffle + edges=optimal", {"order": Shuffle(), "edges": "optimal"}),
    ],
)
def test_a_name_changes_what_it_speaks_of_and_nothing_else(name, changed):
    plan = with_strategy(PLAN, name, window_batches=7)
    for field in ("edges", "max_tokens", "order", "packing", "super_buckets"):
        assert getattr(plan, field) == changed.get(field, getattr(PLAN, field))


def test_every_listed_name_means_something():
    assert all(with_strategy(PLAN, name, window_batches=7) for name in NAMES)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("crdit", "knows no strategy 'crdit'; choose of credit, diversity_first, shuffle, pool_sorted"),
        ("credit+", "knows no strategy ''"),
        ("edges=even", "knows no strategy 'edges=even'"),
        ("super_buckets", "knows no strategy 'super_buckets'.*super_buckets:3"),
        ("super_buckets:x", "super_buckets:x: 'x' is not a whole number"),
        ("super_buckets:0", "plan.super_buckets must be at least 1"),
        ("window_first:0", "window_batches must be at least 1"),
        ("random_order:3", "packing random_order takes no number, got '3'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_list(name, message):
    with pytest.raises(ValueError, match=message):
        with_strategy(PLAN, name, window_batches=7)


def test_packing_has_names_of_its_own():
    with pytest.raises(ValueError, match="no packing named 'credit'; choose one of pool_sorted"):
        packing_of("credit", window_batches=7)


@pytest.mark.parametrize(
    ("before", "name", "expected"),
    [
        # WindowFirst decides the order, whatever the YAML had.
        (
            {"order": Shuffle()},
            "window_first:4",
            {"packing": WindowFirst(window_batches=4), "order": Credit()},
        ),
        # Joined names are taken at once, in whichever order they are written.
        ({"packing": WindowFirst(window_batches=4)}, "shuffle+pool_sorted", {"order": Shuffle()}),
        ({"packing": WindowFirst(window_batches=4)}, "pool_sorted+shuffle", {"order": Shuffle()}),
        ({"order": Shuffle()}, "window_first:4+credit", {"order": Credit()}),
    ],
)
def test_strategies_of_another_kind_than_the_yaml_can_be_compared(before, name, expected):
    plan = with_strategy(replace(PLAN, **before), name, window_batches=7)
    assert {field: getattr(plan, field) for field in expected} == expected


@pytest.mark.parametrize("name", ["window_first:4+shuffle", "shuffle+window_first:4"])
def test_an_order_is_not_dropped_without_a_word(name):
    with pytest.raises(
        ValueError, match="WindowFirst decides the order .* plan.order Shuffle would not apply"
    ):
        with_strategy(PLAN, name, window_batches=7)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("credit+shuffle", "order"),
        ("pool_sorted+mixed_buckets", "packing"),
        ("edges=quantile+edges=optimal", "edges"),
        ("super_buckets:2+super_buckets:3", "super_buckets"),
    ],
)
def test_a_strategy_has_one_of_each(name, field):
    with pytest.raises(ValueError, match=rf"a strategy has one plan.{field}, and this names two"):
        with_strategy(PLAN, name, window_batches=7)
