import pytest

from dflash_lightning.plan import (
    Credit,
    DiversityFirst,
    MixedBuckets,
    PoolSorted,
    RandomOrder,
    Shuffle,
    WindowFirst,
    named_order,
    named_packing,
)


@pytest.mark.parametrize(
    ("name", "order"), [("credit", Credit()), ("diversity_first", DiversityFirst()), ("shuffle", Shuffle())]
)
def test_orders_have_names(name, order):
    assert named_order(name) == order


@pytest.mark.parametrize(
    ("name", "packing"),
    [
        ("pool_sorted", PoolSorted()),
        ("random_order", RandomOrder()),
        ("mixed_buckets", MixedBuckets()),
        ("window_first", WindowFirst(window_batches=8)),
    ],
)
def test_packings_have_names(name, packing):
    assert named_packing(name, window_batches=8) == packing


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="no order named 'sorted'; choose one of credit, diversity_first"):
        named_order("sorted")
    with pytest.raises(ValueError, match="no packing named 'pool'; choose one of pool_sorted, random_order"):
        named_packing("pool")
