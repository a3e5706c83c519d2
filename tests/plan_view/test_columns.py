"""Numbers and columns as people read them."""

import pytest

from dflash_lightning.plan_view.columns import columns, plural, size


def test_columns_stand_under_each_other():
    assert columns([("", "batches"), ("credit", "12"), ("x", "3,456")], left=1) == [
        "        batches",
        "credit       12",
        "x         3,456",
    ]


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.00 kB"),
        (27_300_000, "27.3 MB"),
        (206_000_000, "206 MB"),
        (1_460_000_000, "1.46 GB"),
        (183_000_000_000_000, "183 TB"),
    ],
)
def test_three_digits_and_a_unit(num_bytes, text):
    assert size(num_bytes) == text


def test_one_and_many():
    assert [plural(n, "batch") for n in (1, 2)] == ["1 batch", "2 batches"]
    assert [plural(n, "strategy") for n in (1, 1000)] == ["1 strategy", "1,000 strategies"]
    assert plural(0, "rank") == "0 ranks"
