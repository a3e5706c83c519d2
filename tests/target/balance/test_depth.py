"""How far ahead: a table of single decisions, and that they come to rest."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.target.balance.depth import DepthBounds, DepthState, next_depth
from tests.target.balance.intervals import interval

BOUNDS = DepthBounds(least=1, most=4, patience=2, memory_bytes=100)
JITTER = interval(wait=1.0, feed_wait=3.0, in_flight=20)
"""Training waited, while devices were idle and the feed stood before full queues."""
CALM = interval(in_flight=20)


@pytest.mark.parametrize(
    ("state", "ranks", "expected"),
    [
        (DepthState(depth=2), [JITTER], DepthState(depth=3, floor=3)),
        (DepthState(depth=2), [CALM, JITTER, CALM], DepthState(depth=3, floor=3)),  # the worst decides
        (DepthState(depth=4), [JITTER], DepthState(depth=4)),  # the upper bound
        # depth does not help a target that is never idle, or a feed that is behind
        (DepthState(depth=2), [interval(wait=5.0, feed_wait=5.0, busy=(10.0,))], DepthState(depth=2)),
        (DepthState(depth=2), [interval(wait=5.0, source=10.0)], DepthState(depth=2)),
        # the budget holds no more: 70 bytes at depth 2 would be 105
        (DepthState(depth=2), [replace(JITTER, bytes_in_flight=70.0)], DepthState(depth=2)),
        (DepthState(depth=2), [replace(JITTER, bytes_in_flight=66.0)], DepthState(depth=3, floor=3)),
        (DepthState(depth=3), [CALM], DepthState(depth=3, calm=1)),
        (DepthState(depth=3, calm=1), [CALM], DepthState(depth=2)),  # calm for long enough
        (DepthState(depth=3, calm=1), [interval(wait=0.05)], DepthState(depth=3)),  # neither calm nor a wait
        (DepthState(depth=3, floor=3, calm=1), [CALM], DepthState(depth=3, floor=3, calm=2)),  # too small
        (DepthState(depth=1, calm=1), [CALM], DepthState(depth=1, calm=2)),  # the lower bound
    ],
)  # fmt: skip
def test_one_decision(state, ranks, expected):
    assert next_depth(state, ranks, BOUNDS) == expected


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 4), st.integers(1, 12))
def test_it_comes_to_rest_at_the_smallest_depth_without_a_wait(start, most, patience, needed):
    """Where training waits exactly below `needed`."""
    bounds = DepthBounds(least=1, most=most, patience=patience)
    state = DepthState(depth=min(start, most))
    depths = []
    for _ in range(20 * (patience + 1)):
        state = next_depth(state, [JITTER if state.depth < needed else CALM], bounds)
        depths.append(state.depth)
    assert set(depths[-5 * (patience + 1) :]) == {min(needed, most)}
    assert all(abs(new - old) <= 1 for old, new in zip(depths, depths[1:], strict=False))


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.integers(0, 200)), max_size=30))
def test_it_never_leaves_its_bounds(history):
    bounds = DepthBounds(least=2, most=5, patience=1, memory_bytes=150)
    state = DepthState(depth=3)
    for wait, feed_wait, in_flight in history:
        state = next_depth(state, [interval(wait=wait, feed_wait=feed_wait, in_flight=in_flight)], bounds)
        assert 2 <= state.depth <= 5


@pytest.mark.parametrize(("least", "most"), [(0, 3), (4, 3)])
def test_bounds_that_make_no_sense_are_refused(least, most):
    with pytest.raises(ValueError, match=f"1 <= min_depth <= max_depth, got {least} and {most}"):
        DepthBounds(least=least, most=most)
