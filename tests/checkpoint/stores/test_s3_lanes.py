"""How many requests are on their way at once, as the answers of the server say."""

import threading

import pytest
from botocore.session import Session

from dflash_lightning.checkpoint.stores.s3_lanes import Lanes


def inside(lanes, count):
    """Threads that are in a lane, each ended by its own event. Returns those events."""
    ends = []
    for _ in range(count):
        entered, end = threading.Event(), threading.Event()

        def request(entered=entered, end=end):
            lanes.enter()
            entered.set()
            end.wait()
            lanes.answered(busy=False)

        threading.Thread(target=request, daemon=True).start()
        assert entered.wait(30.0)
        ends.append(end)
    return ends


def one(lanes, *, busy=False):
    lanes.enter()
    lanes.answered(busy=busy)


def test_nothing_is_limited_before_the_server_asks():
    lanes = Lanes()
    ends = inside(lanes, 40)
    assert lanes.limit is None
    for end in ends:
        end.set()


@pytest.mark.parametrize(("others", "limit"), [(0, 1), (1, 1), (2, 1), (3, 2), (7, 4)])
def test_half_of_what_is_on_its_way_stays_allowed(others, limit):
    lanes = Lanes()
    ends = inside(lanes, others)
    one(lanes, busy=True)
    assert lanes.limit == limit
    for end in ends:
        end.set()


def test_a_full_road_is_waited_for():
    lanes = Lanes()
    one(lanes, busy=True)
    (end,) = inside(lanes, 1)
    passed = threading.Event()
    threading.Thread(target=lambda: (one(lanes), passed.set()), daemon=True).start()
    assert not passed.wait(0.05)
    end.set()
    assert passed.wait(30.0)


def test_as_many_good_answers_as_lanes_add_one_until_nothing_is_limited():
    lanes, limits = Lanes(), []
    one(lanes, busy=True)
    while lanes.limit is not None:
        limits.append(lanes.limit)
        one(lanes)
    assert limits == [lane for lane in range(1, 17) for _ in range(lane)]


def test_trouble_starts_the_count_anew():
    lanes = Lanes()
    one(lanes, busy=True)
    one(lanes)
    one(lanes)
    assert lanes.limit == 2
    one(lanes, busy=True)
    assert lanes.limit == 1


def test_an_attempt_whose_end_nobody_told_blocks_nobody():
    lanes = Lanes()
    one(lanes, busy=True)
    lanes.enter()
    lanes.enter()  # the same thread
    lanes.leave()
    lanes.leave()
    one(lanes)


@pytest.mark.parametrize(
    ("answer", "limit"),
    [
        ({"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}, 1),
        ({"Error": {"Code": "TooManyRequests"}}, 1),
        ({"ResponseMetadata": {"HTTPStatusCode": 503}}, 1),  # of a HEAD, which has no words
        ({"ResponseMetadata": {"HTTPStatusCode": 200}}, None),
        ({"Error": {"Code": "InternalError"}, "ResponseMetadata": {"HTTPStatusCode": 500}}, None),
        (None, None),
    ],
)
def test_which_answers_ask_to_slow_down(answer, limit):
    lanes = Lanes()
    client = Session().create_client(
        "s3", region_name="here", aws_access_key_id="a", aws_secret_access_key="b"
    )
    lanes.watch(client)
    client.meta.events.emit("before-send.s3.PutObject", request=None)
    client.meta.events.emit(
        "response-received.s3.PutObject",
        response_dict=None,
        parsed_response=answer,
        context={},
        exception=None,
    )
    assert lanes.limit == limit
    inside(lanes, 1)[0].set()  # the lane is free again
