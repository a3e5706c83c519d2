"""Sums by bucket travel with the sums of the window. Ratios on literal numbers: test_normalize.py."""

import math

import pytest
import torch

from dflash_lightning.training.forward import BlockOutcome
from dflash_lightning.training.window_sums import Sums, WindowSums

NOBODY = {"sigterm": False, "sigint": False, "storage": False}
"""Votes of a rank that was not asked to stop."""


def outcome(loss, weight=1.0, right=True):
    """Two blocks of one slot each, both alike."""
    as_block = torch.full((1, 2, 1), float(weight))
    supervised = as_block > 0
    return BlockOutcome(
        torch.full_like(as_block, float(loss)), as_block, supervised, supervised & torch.tensor(right)
    )


def finish(micro_batches, buckets=3, reduce=lambda vector: vector):
    sums = WindowSums(buckets)
    for bucket, *values in micro_batches:
        sums.add(outcome(*values), bucket)
    return sums.finish(torch.tensor(1.0), NOBODY, reduce)


def test_each_bucket_has_its_own_sums_and_they_add_up():
    totals = finish([(0, 2.0), (2, 3.0, 0.5, False), (0, 4.0)])
    first, absent, last = totals.by_bucket
    assert first == Sums(
        loss=12.0,
        weight=4.0,
        correct=4.0,
        supervised=4.0,
        streak=4.0,
        blocks=4.0,
        micro_batches=2.0,
        micro_loss=6.0,
        micro_square=20.0,
    )
    assert absent == Sums()
    assert (last.mean_loss, last.accuracy, last.tau) == (3.0, 0.0, 1.0)
    whole = first + absent + last
    assert {name: getattr(totals, name) for name in vars(whole)} == vars(whole)


def test_one_collective_carries_all_buckets_of_all_ranks():
    calls = []
    totals = finish([(1, 2.0)], reduce=lambda vector: calls.append(len(vector)) or 2 * vector)
    assert calls == [3 * 9 + 1 + len(NOBODY)]
    assert totals.by_bucket[1].weight == totals.weight == 4.0


def test_a_bad_loss_stays_in_its_bucket():
    totals = finish([(0, math.nan), (1, 2.0)])
    assert math.isnan(totals.loss)
    assert totals.by_bucket[1].mean_loss == 2.0


def test_a_micro_batch_without_weight_has_no_mean():
    totals = finish([(0, 0.0, 0.0), (0, 3.0)])
    assert (totals.micro_batches, totals.micro_loss, totals.micro_square) == (1.0, 3.0, 9.0)
    nothing = finish([(0, 0.0, 0.0)]).by_bucket[0]
    assert nothing == Sums()
    assert math.isnan(nothing.mean_loss)
    assert math.isnan(nothing.tau)


def test_the_micro_batches_of_a_finished_window_stay_until_the_next():
    sums = WindowSums(2)
    sums.add(outcome(2.0), 1)
    sums.add(outcome(3.0), 0)
    sums.clear()
    sums.add(outcome(9.0), 0)
    assert torch.stack(sums.finished)[:, 0].tolist() == pytest.approx([4.0, 6.0])


def test_batches_out_of_turn_are_put_in_the_order_of_the_plan():
    sums = WindowSums(2)
    for loss, bucket, place in [(3.0, 1, 2), (2.0, 0, 0), (5.0, 0, 1)]:
        sums.add(outcome(loss), bucket, place=place)
    totals = sums.finish(torch.tensor(1.0), NOBODY, lambda vector: vector)
    assert [loss.item() for loss in sums.losses] == pytest.approx([4.0, 10.0, 6.0])
    assert [bucket.loss for bucket in totals.by_bucket] == pytest.approx([14.0, 6.0])
    sums.clear()
    assert torch.stack(sums.finished)[:, 0].tolist() == pytest.approx([4.0, 10.0, 6.0])
    assert sums.turns == [1, 2, 0]
