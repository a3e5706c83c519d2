import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.plan.cut import Limits, cut_in_order, cut_sorted

SAMPLES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 30)), min_size=1, max_size=60)
LIMITS = st.fixed_dictionaries(
    {
        "rows": st.integers(1, 9),
        "tokens": st.integers(80, 300),
        "block_tokens": st.integers(1, 90),
        "quadratic": st.sampled_from([None, 40.0, 64.0]),  # a row of 40 costs 80 or 65
    }
)


def fits(batch, limits):
    """The limits said once more, for one batch of (length, blocks)."""
    longest = max(length for length, _ in batch)
    cost = longest if limits["quadratic"] is None else longest + longest**2 / limits["quadratic"]
    within = len(batch) * cost <= limits["tokens"] and len(batch) <= limits["rows"]
    return within and (len(batch) == 1 or sum(block for _, block in batch) <= limits["block_tokens"])


def cut(samples, starts):
    return [samples[start:stop] for start, stop in zip(starts, [*starts[1:], len(samples)], strict=True)]


def arrays(samples):
    return (np.array(column, np.int64).reshape(-1) for column in zip(*samples, strict=True))


@settings(deadline=None)
@given(SAMPLES, LIMITS, st.booleans())
def test_batches_are_legal_and_end_only_where_one_more_sample_is_too_much(samples, limits, by_length):
    if by_length:
        samples = sorted(samples, reverse=True)
        starts = cut_sorted(*arrays(samples), len(samples), Limits(**limits)).tolist()
    else:
        starts = cut_in_order(*arrays(samples), Limits(**limits)).tolist()
    batches = cut(samples, starts)
    assert [sample for batch in batches for sample in batch] == samples
    assert all(fits(batch, limits) for batch in batches)
    assert not any(
        fits([*batch, after[0]], limits) for batch, after in zip(batches, batches[1:], strict=False)
    )


@given(SAMPLES, LIMITS, st.data())
def test_part_of_a_legal_batch_is_legal(samples, limits, data):
    """Hereditary limits: what window-first's binary search and the halving of the tail rest on."""
    part = data.draw(st.lists(st.sampled_from(samples), min_size=1, unique_by=id))
    assert fits(part, limits) or not fits(samples, limits)


@settings(deadline=None)
@given(SAMPLES, LIMITS)
def test_a_sorted_cut_never_loses_a_batch_when_a_sample_is_added(samples, limits):
    counts = [0]
    for count in range(1, len(samples) + 1):
        first = sorted(samples[:count], reverse=True)
        counts.append(len(cut_sorted(*arrays(first), count, Limits(**limits))))
    assert all(0 <= after - before <= 2 for before, after in zip(counts, counts[1:], strict=False))


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"rows": 64, "tokens": 49_152}, [40, 6]),  # rows times length
        ({"rows": 64, "tokens": 84_872, "quadratic": 11_273.0}, [63, 6]),  # as documented: 63 and 6
        ({"rows": 50, "tokens": 84_872, "quadratic": 11_273.0}, [50, 6]),
        ({"rows": 64, "tokens": 16_384, "quadratic": 8192.0}, [11, 1]),  # a row of 8,192 costs 16,384
    ],
)
def test_the_longest_row_says_how_many_rows_a_batch_has(limits, most):
    assert Limits(**limits, block_tokens=1).most_rows(np.array([1216, 8192])).tolist() == most


def test_budgets_beyond_the_range_of_small_lengths_hold():
    small = np.array([100, 7], np.int32)
    assert Limits(rows=1 << 40, tokens=1 << 40, block_tokens=1).most_rows(small).tolist() == [
        (1 << 40) // 100,
        (1 << 40) // 7,
    ]
