import jsonargparse
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
    config_facts,
)


class DataModule:
    """Stands for the class whose argument the plan's settings are."""

    def __init__(self, plan: PlanConfig = PlanConfig(), seed: int = 0) -> None:  # noqa: B008
        self.plan = plan


def parser():
    made = jsonargparse.ArgumentParser(exit_on_error=False)
    made.add_class_arguments(DataModule, "data")
    return made


def parsed(yaml):
    return parser().instantiate(parser().parse_string(yaml)).data.plan


@pytest.mark.parametrize(
    ("yaml", "config"),
    [
        ("data: {}", PlanConfig()),
        ("data: {plan: {edges: [128, 256]}}", PlanConfig(edges=(128, 256))),
        ("data: {plan: {edges: quantile, num_buckets: 3}}", PlanConfig(edges="quantile", num_buckets=3)),
        (
            "data: {plan: {edges: optimal, quadratic_length: 8192}}",
            PlanConfig(edges="optimal", quadratic_length=8192.0),
        ),
        ("data: {plan: {order: DiversityFirst}}", PlanConfig(order=DiversityFirst())),
        ("data: {plan: {order: {class_path: Shuffle}}}", PlanConfig(order=Shuffle())),
        ("data: {plan: {packing: RandomOrder, order: Credit}}", PlanConfig(packing=RandomOrder())),
        (
            "data: {plan: {packing: {class_path: PoolSorted, init_args: {pool_batches: 7}}}}",
            PlanConfig(packing=PoolSorted(pool_batches=7)),
        ),
        (
            "data: {plan: {packing: {class_path: WindowFirst, init_args: {window_batches: 32}}}}",
            PlanConfig(packing=WindowFirst(window_batches=32)),
        ),
        ("data: {plan: {packing: MixedBuckets}}", PlanConfig(packing=MixedBuckets())),
        (
            "data: {plan: {super_buckets: 3, min_length: 16, quadratic_budget: 11273, static_shapes: true}}",
            PlanConfig(super_buckets=3, min_length=16, quadratic_budget=11_273.0, static_shapes=True),
        ),
        ("data: {plan: {oversize: drop, tail: drop}}", PlanConfig(oversize="drop", tail="drop")),
    ],
)
def test_yaml_becomes_a_config(yaml, config):
    assert parsed(yaml) == config


def test_the_command_line_names_strategies_by_their_short_names():
    words = [
        "--data.plan.order=Shuffle",
        "--data.plan.packing=PoolSorted",
        "--data.plan.packing.pool_batches=5",
    ]
    made = parser().instantiate(parser().parse_args(words)).data.plan
    assert made == PlanConfig(order=Shuffle(), packing=PoolSorted(pool_batches=5))


def test_a_printed_config_reads_back():
    config = parser().parse_string("data: {plan: {edges: [128, 256], order: Shuffle}}")
    assert parsed(parser().dump(config)) == PlanConfig(edges=(128, 256), order=Shuffle())


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("data: {plan: {edge: [128]}}", "edge"),
        ("data: {plan: {edges: geometric}}", "geometric"),
        ("data: {plan: {order: Sorted}}", "Sorted"),
        ("data: {plan: {packing: {class_path: PoolSorted, init_args: {pool: 7}}}}", "pool"),
    ],
)
def test_yaml_that_means_nothing_is_refused_by_name(yaml, message):
    with pytest.raises(jsonargparse.ArgumentError, match=message):
        parser().parse_string(yaml)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"edges": ()}, r"plan.edges must be positive and strictly increasing, got \(\)"),
        ({"edges": (64, 64)}, r"plan.edges must be positive and strictly increasing, got \(64, 64\)"),
        ({"edges": (-1, 64)}, r"plan.edges must be positive and strictly increasing, got \(-1, 64\)"),
        (
            {"edges": (0, 64)},
            r"plan.edges are upper bounds, .* got \(0, 64\); leave the 0 out, and set plan.min_length",
        ),
        (
            {"edges": (64, 8192), "max_tokens": 4096},
            r"plan.max_tokens 4096 cannot hold one sample of the last edge 8192 \(padded to 8192\); "
            "raise plan.max_tokens or lower plan.edges",
        ),
        (
            {"edges": (100,), "max_tokens": 100, "pad_multiple": 16},  # fits only before rounding
            r"plan.max_tokens 100 cannot hold one sample of the last edge 100 \(padded to 112\)",
        ),
        (
            {"max_tokens": 100, "pad_multiple": 128},
            "plan.max_tokens 100 cannot hold one sample padded to plan.pad_multiple 128",
        ),
        (
            {"edges": (64, 8192), "quadratic_budget": 4096.0, "max_tokens": 24_575},
            r"plan.max_tokens 24575 cannot hold one sample of the last edge 8192 "
            r"\(padded to 8192, 24576 as plan.quadratic_budget 4096 charges it\); raise",
        ),
        (
            {"max_tokens": 100, "pad_multiple": 64, "quadratic_budget": 32.0},
            "plan.max_tokens 100 cannot hold one sample padded to plan.pad_multiple 64, "
            "192 as plan.quadratic_budget 32 charges it; raise",
        ),
        ({"quadratic_budget": 0.0}, "plan.quadratic_budget must be a positive length, or null for a linear"),
        ({"super_buckets": 0}, "plan.super_buckets must be at least 1, or null to merge none, got 0"),
        ({"min_length": -1}, r"plan.min_length must be 0 \(none left out\) or more, got -1"),
        (
            {"edges": (64,), "min_length": 65},
            "plan.min_length must be at most 64, the longest sample that a batch can hold, got 65",
        ),
        (
            {"packing": WindowFirst(window_batches=8), "order": Shuffle()},
            "plan.packing WindowFirst decides the order of the batches, so plan.order Shuffle would not "
            "apply; leave plan.order out",
        ),
        (
            {"packing": MixedBuckets(), "static_shapes": True},
            "plan.static_shapes pads to the edges of buckets, which plan.packing MixedBuckets mixes; "
            "set plan.packing to PoolSorted or RandomOrder",
        ),
        (
            {"packing": WindowFirst(window_batches=8), "static_shapes": True},
            "plan.static_shapes .* which plan.packing WindowFirst mixes",
        ),
        ({"max_tokens": 0}, "plan.max_tokens must be at least 1, got 0"),
        ({"max_rows": 0}, "plan.max_rows must be at least 1, got 0"),
        ({"num_buckets": 0}, "plan.num_buckets must be at least 1, got 0"),
        ({"pad_multiple": 0}, "plan.pad_multiple must be at least 1, got 0"),
        ({"max_block_tokens": -1}, r"plan.max_block_tokens must be 0 \(off\) or more, got -1"),
        ({"block_cost": -0.5}, "plan.block_cost must be 0 or more, got -0.5"),
        (
            {"quadratic_length": 0.0},
            "plan.quadratic_length must be a positive length, or null for linear cost, got 0.0",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PlanConfig(**settings)


def test_facts_are_plain_values():
    config = PlanConfig(edges=(128, 256), packing=PoolSorted(pool_batches=3), order=Credit())
    assert config_facts(config) == {
        "edges": [128, 256],
        "super_buckets": None,
        "min_length": 0,
        "max_tokens": 49_152,
        "quadratic_budget": None,
        "max_rows": 64,
        "max_block_tokens": 65_536,
        "pad_multiple": 1,
        "packing": {"class": "PoolSorted", "pool_batches": 3},
        "static_shapes": False,
        "order": {"class": "Credit"},
        "oversize": "error",
        "tail": "split",
        "quadratic_length": 8192.0,
        "block_cost": 1.0,
    }
    assert config_facts(PlanConfig())["num_buckets"] == 6  # it matters while a rule finds the edges


@pytest.mark.parametrize(
    ("settings", "longest"),
    [
        ({"max_tokens": 1000}, 1000),
        ({"max_tokens": 1000, "pad_multiple": 64}, 960),
        ({"max_tokens": 1000, "quadratic_budget": 500.0}, 500),  # 500 + 500 * 500 / 500
        ({"max_tokens": 999, "quadratic_budget": 500.0}, 499),
        ({"max_tokens": 1000, "quadratic_budget": 500.0, "pad_multiple": 64}, 448),
        ({"edges": (30, 100), "pad_multiple": 64, "quadratic_budget": 500.0}, 128),
    ],
)
def test_the_longest_sample_is_the_longest_that_the_budget_holds(settings, longest):
    assert PlanConfig(**settings).longest == longest
