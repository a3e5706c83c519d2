"""Who computes the next batch, and which one is trained next: tables and laws over plain values."""

import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.target.dispatch import (
    Dispatcher,
    Head,
    PrefetchPolicy,
    fits,
    has_room,
    next_delivery,
    next_device,
)

READY, NOT = True, False


@pytest.mark.parametrize(
    ("dispatch", "turn", "pending", "room", "device"),
    [
        ("round_robin", 0, [9, 0], [True, True], 0),
        ("round_robin", 1, [0, 9], [True, True], 1),
        ("round_robin", 5, [0, 0, 0], [True, True, True], 2),
        ("round_robin", 1, [0, 9], [True, False], None),  # its turn, and it waits for its queue
        ("least_loaded", 0, [9, 3, 5], [True, True, True], 1),
        ("least_loaded", 0, [3, 3, 5], [True, True, True], 0),
        ("least_loaded", 1, [3, 3, 5], [True, True, True], 1),  # a tie: whose turn it is
        ("least_loaded", 5, [3, 3, 5], [True, True, True], 0),  # or would be next
        ("least_loaded", 0, [3, 4, 5], [False, True, True], 1),  # a full queue is passed over
        ("least_loaded", 0, [3, 4], [False, False], None),
    ],
)
def test_who_computes_the_next_batch(dispatch, turn, pending, room, device):
    assert next_device(dispatch, turn=turn, pending_tokens=pending, room=room) == device


@pytest.mark.parametrize(
    ("dispatch", "queued", "unbegun", "room"),
    [
        ("round_robin", [0, 2, 1], [0, 0, 1], [True, False, True]),
        ("least_loaded", [0, 2, 1], [0, 0, 1], [True, True, False]),  # none behind one that is not begun
        (
            "least_loaded",
            [0, 5, 0],
            [0, 0, 0],
            [True, True, True],
        ),  # more than its share: the others are slow
        ("least_loaded", [1, 5, 0], [0, 0, 0], [False, False, False]),  # all together have enough
    ],
)
def test_who_may_be_given_one_more(dispatch, queued, unbegun, room):
    assert has_room(dispatch, depth=2, queued=queued, unbegun=unbegun) == room


@pytest.mark.parametrize(
    ("delivery", "heads", "device"),
    [
        ("in_order", [None, None], None),
        ("in_order", [Head(3, 0, NOT), Head(2, 0, READY)], 1),
        ("in_order", [Head(3, 0, READY), Head(2, 0, NOT)], None),
        ("ready_first", [Head(3, 0, READY), Head(2, 0, NOT)], 0),
        ("ready_first", [Head(4, 1, READY), Head(2, 0, NOT)], None),  # the window is drained first
        ("ready_first", [Head(4, 0, READY), Head(3, 0, READY), Head(2, 0, NOT)], 1),
        ("ready_first", [Head(4, 1, READY), None], 0),
        ("ready_first", [None], None),
    ],
)
def test_what_is_trained_next(delivery, heads, device):
    assert next_delivery(delivery, heads) == device


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_delivery_by_readiness_never_leaves_the_oldest_window(batches, random):
    windows = sorted(window for window, _ in batches)
    heads = [Head(i, windows[i], ready) for i, (_, ready) in enumerate(batches)]
    random.shuffle(heads)
    device = next_delivery("ready_first", heads)
    candidates = [head.number for head in heads if head.ready and head.window == windows[0]]
    assert device is None if not candidates else heads[device].number == min(candidates)


@pytest.mark.parametrize(
    ("cost", "in_flight", "budget", "allowed"),
    [(5, 5, 10, True), (6, 5, 10, False), (11, 0, 10, True), (11, 1, 10, False), (10**12, 9, None, True)],
)
def test_what_is_larger_than_the_budget_runs_alone(cost, in_flight, budget, allowed):
    assert fits(cost, in_flight=in_flight, budget=budget) is allowed


@given(st.integers(1, 8), st.integers(0, 100))
def test_turns_are_dealt_evenly(devices, batches):
    dispatcher = Dispatcher()
    dealt = Counter(
        dispatcher.choose("round_robin", pending_tokens=[0] * devices, room=[True] * devices)
        for _ in range(batches)
    )
    counts = [dealt[device] for device in range(devices)]
    assert sum(counts) == batches
    assert max(counts) - min(counts) <= 1


def test_feeders_that_share_the_counter_deal_evenly_together():
    dispatcher, dealt = Dispatcher(), Counter()
    lock, start = threading.Lock(), threading.Barrier(4)

    def feed():
        start.wait()
        for _ in range(301):
            device = dispatcher.choose("round_robin", pending_tokens=[0] * 6, room=[True] * 6)
            with lock:
                dealt[device] += 1

    feeders = [threading.Thread(target=feed) for _ in range(4)]
    for feeder in feeders:
        feeder.start()
    for feeder in feeders:
        feeder.join()
    assert sorted(dealt.values()) == [200, 200, 201, 201, 201, 201]


def test_a_turn_that_finds_a_full_queue_is_not_lost():
    dispatcher = Dispatcher()
    for room, device in [([True] * 2, 0), ([True, False], None), ([True, False], None), ([True] * 2, 1)]:
        assert dispatcher.choose("round_robin", pending_tokens=[0, 0], room=room) == device


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": -1}, r"prefetch depth must be at least 0 batches \(0: no pipeline\), got -1"),
        ({"memory_bytes": 0}, "prefetch memory must be at least 1 byte, got 0; null leaves depth"),
    ],
)
def test_policies_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PrefetchPolicy(**options)
