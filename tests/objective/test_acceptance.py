import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.objective import Acceptance, streaks

LABELS = torch.tensor([5, 6, 7, 8])
DRAFTS = torch.tensor([[5, 6, 7, 8], [5, 9, 7, 8], [1, 6, 7, 8], [5, 6, 7, 8]])
SUPERVISED = torch.ones(4, 4, dtype=torch.bool)
SUPERVISED[3] = torch.tensor([True, False, True, True])


def test_streaks_of_the_worked_example():
    assert streaks(DRAFTS == LABELS, SUPERVISED).tolist() == [4, 1, 0, 3]


def test_an_unsupervised_miss_breaks_nothing():
    assert streaks(DRAFTS[1:2] == LABELS, SUPERVISED[3:]).tolist() == [3]


def test_acceptance_of_the_worked_example():
    metric = Acceptance(5)
    metric.update(DRAFTS == LABELS, SUPERVISED)
    values = {name: value.item() for name, value in metric.compute().items()}
    slots = {f"accuracy_slot_{k}": value for k, value in enumerate((3 / 4, 2 / 3, 1, 1), start=1)}
    assert values == {"tau": 3.0, "streak": 2.0, "accuracy": 13 / 15, **slots}


def test_blocks_without_supervision_do_not_count():
    metric = Acceptance(4)
    metric.update(torch.ones(2, 1, 3).bool(), torch.tensor([[[1, 1, 1]], [[0, 0, 0]]]).bool())
    assert metric.compute()["tau"] == 4.0


def test_nothing_counted_is_nan_not_a_length():
    metric = Acceptance(4)
    metric.update(torch.ones(1, 3).bool(), torch.zeros(1, 3).bool())
    assert all(math.isnan(value) for value in metric.compute().values())


def test_it_is_the_mean_streak_not_the_product_of_marginal_accuracies():
    either, both = Acceptance(3), Acceptance(3)
    either.update(torch.tensor([[1, 0], [0, 1]]).bool(), torch.ones(2, 2).bool())
    both.update(torch.tensor([[1, 1], [0, 0]]).bool(), torch.ones(2, 2).bool())
    assert [metric.compute()["streak"].item() for metric in (either, both)] == [
        0.5,
        1.0,
    ]  # marginals: .75 twice


@pytest.mark.parametrize(
    ("p", "block_size", "tau"), [(0.8, 16, 4.859263), (0.7, 8, 3.141173), (0.5, 4, 1.875)]
)
def test_independent_slots_follow_the_geometric_law(p, block_size, tau):
    hits = torch.rand(60_000, block_size - 1, generator=torch.Generator().manual_seed(0)) < p
    metric = Acceptance(block_size)
    metric.update(hits, torch.ones_like(hits))
    assert abs(metric.compute()["tau"].item() - tau) < 0.05


slot = st.booleans()
block = st.lists(st.tuples(slot, slot), min_size=3, max_size=3)


@given(blocks=st.lists(block, min_size=2, max_size=12), data=st.data())
def test_any_split_over_batches_and_ranks_gives_the_same_values(blocks, data):
    correct, supervised = torch.tensor(blocks).unbind(-1)
    whole, parts = Acceptance(4), [Acceptance(4), Acceptance(4)]
    whole.update(correct, supervised)
    cut = data.draw(st.integers(1, len(blocks) - 1))
    for metric, part in zip(parts, (slice(cut), slice(cut, None)), strict=True):
        metric.update(correct[part], supervised[part])
    parts[0].merge_state(parts[1])  # sums, as the all-reduce over ranks does
    for name, value in whole.compute().items():
        torch.testing.assert_close(parts[0].compute()[name], value, equal_nan=True, atol=0, rtol=0)


@given(blocks=st.lists(block, min_size=1, max_size=12))
def test_streaks_are_the_loop_spelled_out(blocks):
    correct, supervised = torch.tensor(blocks).unbind(-1)
    expected = []
    for row in blocks:
        streak = 0
        for hit, counts in row:
            if counts and not hit:
                break
            streak += counts
        expected.append(streak)
    assert streaks(correct, supervised).tolist() == expected
