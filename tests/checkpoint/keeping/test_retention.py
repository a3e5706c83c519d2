"""Which checkpoints go: a table, and laws over all of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.checkpoint.job import Retention
from dflash_lightning.checkpoint.keeping.retention import best_first, to_delete
from dflash_lightning.checkpoint.manifest import Manifest

SCORES = [3.0, 1.0, math.nan, 2.0, 5.0]  # of steps 1 to 5


def saved(scores, run_ids=None):
    return [
        Manifest(
            name=f"step={step}-{step:08x}",
            serial=step,
            run_id=(run_ids or {}).get(step, "a"),
            step=step,
            epoch=0,
            kind="step",
            created=0.0,
            files=(),
            metrics={"loss": score},
            monitor="loss",
        )
        for step, score in enumerate(scores, start=1)
    ]


def gone(manifests, protected=(), run_id="a", **retention):
    keys = [m.key for m in manifests if m.step in protected]
    return [m.step for m in to_delete(manifests, Retention(**retention), run_id, protected=keys)]


@pytest.mark.parametrize(
    ("retention", "steps"),
    [
        ({}, [1, 2, 3, 4]),
        ({"keep_last": 2}, [1, 2, 3]),
        ({"keep_last": 9}, []),
        ({"keep_last": -1}, []),
        ({"keep_last": 0}, [1, 2, 3, 4]),  # the newest never goes
        ({"monitor": "loss"}, [1, 3, 4]),
        ({"monitor": "loss", "mode": "max"}, [1, 2, 3, 4]),  # the best is the newest
        ({"monitor": "loss", "keep_best": 2}, [1, 3]),
        ({"monitor": "loss", "keep_best": -1}, [3]),  # a value that is not finite is never the best
        ({"monitor": "loss", "keep_best": 0}, [1, 2, 3, 4]),
        ({"monitor": "other"}, [1, 2, 3, 4]),
        ({"every_n_steps": 2}, [1, 3]),
        ({"every_n_steps": 2, "monitor": "loss", "keep_last": 2}, [1, 3]),
    ],
)
def test_what_goes(retention, steps):
    assert gone(saved(SCORES), **retention) == steps


def test_protected_ones_stay():
    assert gone(saved(SCORES), protected=[1, 3]) == [2, 4]


def test_those_of_another_run_stay_and_do_not_count():
    manifests = saved(SCORES, {1: "b", 5: "b"})
    assert gone(manifests, keep_last=2) == [2]
    assert gone(manifests, run_id=None, keep_last=2) == [1, 2, 3]


def test_the_newest_is_the_last_published_not_the_highest_step():
    """A run that went back to step 2 and went another way from there."""
    manifests = saved(SCORES)
    again = Manifest(
        name="step=3-ffffffff", serial=6, run_id="a", step=3, epoch=0, kind="step", created=0.0, files=()
    )
    assert again not in to_delete([*manifests, again], Retention(), "a")
    assert manifests[4] in to_delete([*manifests, again], Retention(), "a")


def test_of_equals_the_older_is_the_best():
    assert [m.step for m in best_first(saved([2.0, 1.0, 1.0]), "loss", "min")] == [2, 3, 1]
    assert [m.step for m in best_first(saved([2.0, 1.0, 2.0]), "loss", "max")] == [1, 3, 2]


SCORE = st.one_of(st.integers(0, 4).map(float), st.sampled_from([math.nan, math.inf, -math.inf]))


@given(
    scores=st.lists(SCORE, max_size=12),
    others=st.sets(st.integers(1, 12)),
    protected=st.sets(st.integers(1, 12)),
    keep_last=st.integers(-1, 4),
    keep_best=st.integers(-1, 4),
    every=st.one_of(st.none(), st.integers(1, 5)),
    mode=st.sampled_from(["min", "max"]),
)
def test_laws(scores, others, protected, keep_last, keep_best, every, mode):
    manifests = saved(scores, dict.fromkeys(others, "b"))
    rules = {"keep_last": keep_last, "keep_best": keep_best, "every_n_steps": every}
    steps = gone(manifests, protected, monitor="loss", mode=mode, **rules)
    assert len(scores) not in steps  # the newest
    assert not set(steps) & (others | protected)
    own = [m for m in manifests if m.run_id == "a"]
    stay = [m for m in own if m.step not in steps]
    assert len(stay) >= min(len(own), max(1, keep_last))
    finite = [m.metrics["loss"] for m in own if math.isfinite(m.metrics["loss"])]
    if finite and keep_best != 0:
        best = min(finite) if mode == "min" else max(finite)
        assert best in [m.metrics["loss"] for m in stay]
        kept = sorted(
            (m.metrics["loss"] for m in stay if math.isfinite(m.metrics["loss"])), reverse=mode == "max"
        )
        wanted = sorted(finite, reverse=mode == "max")[: None if keep_best == -1 else keep_best]
        assert kept[: len(wanted)] == wanted
    assert all(m.step not in steps for m in own if every is not None and m.step % every == 0)
    left = [m for m in manifests if m.step not in steps]
    assert gone(left, protected, monitor="loss", mode=mode, **rules) == []
