"""Steps of a run, and the learning rates it passes through."""

import pytest

from dflash_lightning.plan_view.run_length import RunLength, learning_rates, run_length
from dflash_lightning.training.optimizer import AdamWConfig


@pytest.mark.parametrize(
    ("max_epochs", "max_steps", "steps", "exact"),
    [
        (None, -1, None, True),  # nobody said how long the run is
        (None, 250, 250, True),
        (1, -1, 100, True),
        (6, -1, 600, False),  # later epochs differ by a few steps
        (6, 250, 250, True),
        (2, 1000, 200, False),
        (1, 1000, 100, True),
    ],
)
def test_epochs_make_steps_and_max_steps_cap_them(max_epochs, max_steps, steps, exact):
    assert run_length(100, max_epochs=max_epochs, max_steps=max_steps) == RunLength(steps=steps, exact=exact)


@pytest.mark.parametrize("steps", [1, 2, 7, 400, 12_345])
@pytest.mark.parametrize("warmup", [0.0, 0.04, 0.5])
def test_rates_are_those_of_all_steps(steps, warmup):
    rate = AdamWConfig(lr=2e-3, warmup_fraction=warmup, min_lr_fraction=0.1).rate
    every = [rate((i + 0.5) / steps) for i in range(steps)]
    found = learning_rates(rate, steps)
    assert (found.first, found.peak, found.last) == (every[0], max(every), every[-1])
