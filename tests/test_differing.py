import pytest

from dflash_lightning.differing import differing


@pytest.mark.parametrize(
    ("one", "other", "lines"),
    [
        ({}, {}, []),
        ({"a": 1, "b": [1]}, {"b": [1], "a": 1}, []),
        ({"a": None}, {}, []),  # what is not said and what is none are one
        ({"b": 1, "a": 2, "c": 3}, {"b": 4, "a": 5, "c": 3}, ["a: 2 there, 5 here", "b: 1 there, 4 here"]),
        ({"a": 0}, {}, ["a: 0 there, None here"]),
        ({}, {"a": False}, ["a: None there, False here"]),
        ({"a": [1, 2]}, {"a": [2, 1]}, ["a: [1, 2] there, [2, 1] here"]),
    ],
)
def test_each_other_setting_is_a_line_with_both_values(one, other, lines):
    assert differing(one, other, "there", "here") == lines
