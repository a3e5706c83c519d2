import math

import pytest

from dflash_lightning.checkpoint.keeping.cadence import Cadence, among_best


@pytest.mark.parametrize(
    ("every_n_steps", "every_minutes", "step", "since_s", "due"),
    [
        (10, None, 10, 0, True),
        (10, None, 11, 1e9, False),
        (None, 2.0, 11, 119, False),
        (None, 2.0, 11, 120, True),
        (10, 2.0, 20, 1, True),
        (10, 2.0, 21, 130, True),
        (None, None, 10, 1e9, False),
    ],
)
def test_a_save_is_due_by_steps_or_by_time(every_n_steps, every_minutes, step, since_s, due):
    assert (
        Cadence(every_n_steps=every_n_steps, every_minutes=every_minutes).is_due(step, float(since_s)) == due
    )


@pytest.mark.parametrize(("name", "value"), [("every_n_steps", 0), ("every_minutes", 0.0)])
def test_no_interval_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be above 0, or null for never, got 0"):
        Cadence(**{name: value})


@pytest.mark.parametrize(
    ("known", "value", "keep", "mode", "kept"),
    [
        ([], 1.0, 1, "max", [1.0]),
        ([2.0], 1.0, 1, "max", None),
        ([2.0], 3.0, 1, "max", [3.0]),
        ([2.0], 1.0, 1, "min", [1.0]),
        ([2.0], 2.0, 1, "max", None),  # of equal ones the older stays
        ([2.0], 1.0, 2, "max", [2.0, 1.0]),
        ([2.0, 1.0], 1.5, 2, "max", [2.0, 1.5]),
        ([2.0], 1.0, -1, "max", [2.0, 1.0]),
        ([], 1.0, 0, "max", None),
        ([], math.nan, -1, "max", None),
        ([], math.inf, -1, "max", None),
    ],
)
def test_the_best_values(known, value, keep, mode, kept):
    assert among_best(known, value, keep=keep, mode=mode) == kept
