import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.drafter import draw_anchors, valid_anchors

ALL_ONES = np.ones(8, np.uint8)


@pytest.mark.parametrize(
    ("loss_mask", "anchors"),
    [
        ([1, 1, 0, 1, 0, 1, 1], [0, 5]),
        ([0, 0, 1, 1, 1, 0, 1, 1], [2, 3, 6]),  # 4 ends a turn: the next token is the user's
        ([1, 1, 1, 1, 0, 0, 0, 0], [0, 1, 2]),
        ([1, 0, 1, 0, 1], []),  # isolated ones teach nothing
        ([1], []),
        ([], []),
    ],
)
def test_an_anchor_and_its_successor_are_supervised(loss_mask, anchors):
    assert valid_anchors(np.array(loss_mask, np.uint8)).tolist() == anchors


def test_every_position_is_drawn_equally_often():
    draws = [draw_anchors(ALL_ONES, 2, seed=7, epoch=i // 2000, sample_id=i % 2000) for i in range(6000)]
    counts = np.bincount(np.concatenate(draws), minlength=8)
    assert counts[7] == 0  # has no successor
    assert np.abs(counts[:7] / 6000 - 2 / 7).max() < 0.02  # 3.4 standard deviations


@given(
    loss_mask=st.lists(st.booleans(), max_size=60),
    num_anchors=st.integers(0, 20),
    name=st.tuples(st.integers(0, 2**40), st.integers(0, 100), st.integers(0, 2**40)),
)
def test_anchors_are_valid_distinct_ascending_and_as_many_as_asked(loss_mask, num_anchors, name):
    seed, epoch, sample_id = name
    mask = np.array(loss_mask, np.uint8)
    anchors = draw_anchors(mask, num_anchors, seed=seed, epoch=epoch, sample_id=sample_id)
    valid = valid_anchors(mask)
    assert len(anchors) == min(num_anchors, len(valid))
    assert set(anchors.tolist()) <= set(valid.tolist())
    assert (np.diff(anchors) > 0).all()


def test_the_draw_depends_on_seed_epoch_and_sample_and_on_nothing_else():
    mask = np.ones(200, np.uint8)

    def draw(seed, epoch, sample_id, mask=mask):
        return draw_anchors(mask, 8, seed=seed, epoch=epoch, sample_id=sample_id).tolist()

    names = [(0, 0, 5), (1, 0, 5), (0, 1, 5), (0, 0, 6)]
    forwards, backwards = [draw(*name) for name in names], [draw(*name) for name in reversed(names)]
    assert forwards == backwards[::-1]  # no state: the order of the calls does not matter
    assert len({tuple(anchors) for anchors in forwards}) == len(names)
    assert draw(0, 0, 5, mask=np.pad(mask, (0, 100))) == forwards[0]  # padding does not matter
    assert draw(0, 0, 5, mask=mask.astype(bool)) == forwards[0]
