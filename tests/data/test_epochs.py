"""Where training stands in the plans of all epochs, and how long the run is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.data.epochs import PlannedEpochs, Position
from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan.samples import Samples

CUTS = st.fixed_dictionaries({"world": st.sampled_from([1, 2, 3]), "accumulate": st.sampled_from([1, 2, 4])})


def planned(count: int, **options) -> PlannedEpochs:
    lengths = np.random.default_rng(count).integers(4, 33, count)
    config = PlanConfig(edges=(12, 20, 32), max_tokens=64, max_rows=4, **options)
    samples = Samples(lengths=lengths, supervised=lengths // 2)
    return PlannedEpochs(samples, config, num_anchors=4, block_size=4, seed=0)


def trained(epochs: PlannedEpochs, *, max_epochs: int, max_steps: int, cut: dict[str, int]) -> list[Position]:
    """Every position of a run, by stepping through it."""
    positions = [Position()]
    for epoch in range(max_epochs):
        position = positions[-1]
        positions[-1] = Position(epoch=epoch, steps=position.steps, skipped_batches=position.skipped_batches)
        for window in epochs.windows(positions[-1], **cut):
            if positions[-1].steps == max_steps:
                return positions
            positions.append(positions[-1].after(window, applied=True))
    return positions


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(5, 60),
    max_epochs=st.integers(1, 3),
    max_steps=st.sampled_from([-1, 1, 3, 8, 1000]),
    cut=CUTS,
    tail=st.sampled_from(["split", "drop"]),
)
def test_the_horizon_is_what_a_run_finishes_wherever_it_is_asked(count, max_epochs, max_steps, cut, tail):
    epochs = planned(count, tail=tail)
    if tail == "drop" and epochs.num_batches(0) < cut["world"]:
        return  # refused: nothing would be left of the epoch
    positions = trained(epochs, max_epochs=max_epochs, max_steps=max_steps, cut=cut)
    end = epochs.consumed(positions[-1])
    limits = {"max_epochs": max_epochs, "max_steps": max_steps, **cut}
    assert {epochs.horizon(position, **limits) for position in positions} == {end}


def test_a_finished_epoch_is_the_start_of_the_next():
    epochs, cut = planned(30), {"world": 1, "accumulate": 2}
    end = Position(epoch=0, cursor=epochs.num_batches(0), steps=5)
    assert epochs.settled(end, **cut) == Position(epoch=1, cursor=0, steps=5)
    assert epochs.settled(Position(cursor=2, steps=1), **cut) == Position(cursor=2, steps=1)


def test_a_skipped_window_moves_the_cursor_but_not_the_rate():
    epochs, cut = planned(30), {"world": 1, "accumulate": 2}
    window = epochs.windows(Position(), **cut)[0]
    assert Position().after(window, applied=True) == Position(cursor=2, steps=1)
    assert Position().after(window, applied=False) == Position(cursor=2, steps=1, skipped_batches=2)


def test_a_run_without_an_end_is_refused():
    with pytest.raises(ValueError, match="the run has no end: set trainer.max_epochs or trainer.max_steps"):
        planned(5).horizon(Position(), max_epochs=-1, max_steps=-1, world=1, accumulate=1)
