"""A difference between ranks is one message that names it."""

import re

import pytest

from dflash_lightning.training.start.agreement import flatten, require_equal

OUT = "Do the same everywhere."


@pytest.mark.parametrize(
    ("facts", "flat"),
    [
        ({"a": 1}, {"a": 1}),
        ({"a": {"b": [1, {"c": None}]}}, {"a.b.0": 1, "a.b.1.c": None}),
        ({"a": [], "b": {}}, {"a": [], "b": {}}),
        ({}, {"": {}}),
    ],
)
def test_facts_are_named_by_their_path(facts, flat):
    assert flatten(facts) == flat


def test_equal_facts_pass():
    require_equal("settings", [{"lr": 1.0}] * 3, way_out=OUT)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ([{"lr": 1}, {"lr": 1}, {"lr": 2}], "lr is 1 on rank 0 and 2 on rank 2"),
        ([{"lr": 1}, {}], "lr is 1 on rank 0 and absent on rank 1"),
        ([{}, {"lr": 1}], "lr is absent on rank 0 and 1 on rank 1"),
        ([{"lr": None}, {}], "lr is None on rank 0 and absent on rank 1"),
        ([{"a": 1, "b": 1}, {"a": 2, "b": 2}], "a is 1 on rank 0 and 2 on rank 1; b is 1 on rank 0 and 2"),
    ],
)
def test_a_difference_names_thing_ranks_values_and_way_out(facts, message):
    with pytest.raises(ValueError, match=re.escape(f"ranks have different settings: {message}")) as refusal:
        require_equal("settings", facts, way_out=OUT)
    assert str(refusal.value).endswith(OUT)


def test_many_differences_are_counted_not_listed():
    first, other = ({f"{i}": i + add for i in range(9)} for add in (0, 1))
    with pytest.raises(ValueError, match=r"4 is 4 on rank 0 and 5 on rank 1; and 4 more\."):
        require_equal("versions", [first, other], way_out=OUT)
