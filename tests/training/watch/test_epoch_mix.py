"""The mix of an epoch is kept in bounded memory, whole, and drawn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from dflash_lightning.training.watch.bucket_counts import distance
from dflash_lightning.training.watch.epoch_mix import COLUMNS, STRETCHES, EpochMix


def counted(steps, *, epoch=0):
    mix = EpochMix()
    for step in range(steps):
        mix.add(np.full((3, 2), step), epoch=epoch)
    return mix


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5 * STRETCHES))
def test_no_step_is_lost_and_memory_is_bounded(steps):
    mix = counted(steps)
    assert len(mix.stretches) <= STRETCHES
    assert np.array(mix.stretches).sum(axis=0).tolist() == [[steps * (steps - 1) // 2] * 2] * 3
    starts = range(0, steps, mix.stretch_steps)
    expected = [sum(range(start, min(steps, start + mix.stretch_steps))) for start in starts]
    assert [stretch[0][0] for stretch in mix.stretches] == expected


def test_another_epoch_starts_anew():
    mix = counted(5)
    mix.add(np.ones((3, 2), np.int64), epoch=1)
    assert (mix.epoch, mix.steps, mix.stretches) == (1, 1, [[[1, 1]] * 3])


def test_a_saved_mix_goes_on():
    whole, first = counted(300), counted(200)
    again = EpochMix()
    again.load_state_dict(first.state_dict())
    for step in range(200, 300):
        again.add(np.full((3, 2), step), epoch=0)
    assert again == whole


def test_the_table_has_a_row_for_each_bucket():
    mix = EpochMix()
    mix.add(np.array([[3, 1], [6, 4], [60, 140]]), epoch=0)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in mix.rows(np.array([0.5, 0.5]), (64, 128))]
    first = {
        "bucket": 0,
        "longest": 64,
        "plan_pct": 50,
        "batches_pct": 75,
        "samples_pct": 60,
        "tokens_pct": 30,
    }
    assert rows[0] == first
    assert rows[1]["batches_pct"] == 25


@pytest.mark.parametrize("steps", [1, 2, 300])
def test_the_picture_stacks_all_buckets_up_to_a_hundred(steps):
    figure = Figure()
    counted(steps).draw(figure, np.array([0.5, 0.5]), (64, 128))
    (axes,) = figure.axes
    assert len(axes.patches) == 2
    if steps > 1:
        assert np.nanmax(axes.patches[-1].get_data().values) == pytest.approx(100)


@pytest.mark.parametrize(
    ("counts", "plan", "expected"),
    [
        ([2, 2], [0.5, 0.5], 0.0),
        ([4, 0], [0.5, 0.5], 0.5),
        ([3, 0], [0.0, 1.0], 1.0),
        ([1, 1, 2], [0.2, 0.3, 0.5], 0.05),
    ],
)
def test_the_distance_of_two_mixes(counts, plan, expected):
    assert distance(np.array(counts), np.array(plan)) == pytest.approx(expected)
