"""Which side is too slow, in words, and how devices are best divided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.target.balance.bottleneck import Rates, advice, rates, split
from tests.target.balance.intervals import interval


def found(*, feed=0.01, target=0.1, drafter=0.1, waiting=0.3, devices=1):
    return Rates(feed=feed, target=target, drafter=drafter, waiting=waiting, devices=devices)


@pytest.mark.parametrize(
    ("rates", "side"),
    [
        (found(waiting=0.01, target=1.0), "drafter"),  # training hardly waits, whatever the others take
        (found(target=0.3, devices=2), "target"),
        (found(target=0.3, devices=4, feed=0.2), "feed"),
        (found(target=0.3, devices=2, feed=0.2), "feed"),  # the slower of two that are too slow
        (found(target=0.3, devices=4), "jitter"),
    ],
)
def test_the_bottleneck(rates, side):
    assert rates.side == side


def test_rates_are_seconds_per_batch_over_all_ranks():
    ranks = [
        interval(wait=4.0, source=2.0, busy=(9.0, 9.0)),
        interval(wait=0.0, source=4.0, busy=(6.0, 8.0)),
    ]
    measured = rates(ranks)
    assert measured is not None
    assert (measured.feed, measured.target, measured.drafter) == (0.03, 0.16, 0.08)
    assert (measured.waiting, measured.devices, measured.balance) == (0.2, 2, 2.0)


@pytest.mark.parametrize("nothing", [{"delivered": 0.0}, {"busy": (0.0, 0.0)}])
def test_there_are_no_rates_where_nothing_was_done(nothing):
    assert rates([interval(**nothing)]) is None


@pytest.mark.parametrize(
    ("rates", "states_from", "words"),
    [
        (found(waiting=0.0), "own devices", None),
        (
            found(waiting=0.0, target=0.1, drafter=0.1, devices=3),
            "own devices",
            "the drafter is the bottleneck, and target devices stand idle: training waits 0.0 % of its "
            "time; a batch takes 100 ms of a target device and 100 ms of a drafter, so 1.0 target devices "
            "per drafter would balance them, and there are 3 (model.target_devices; of 8 devices: 4 + 4)",
        ),
        (found(waiting=0.0, devices=3), "drafter's device", None),  # nothing could be given away
        (found(waiting=0.0, target=0.05), "own devices", None),  # half idle
        (
            found(waiting=0.0, target=0.01),
            "own devices",
            "the drafter is the bottleneck, and its target device stands idle 90.0 % of the time: a batch "
            "takes 10 ms of a target device and 100 ms of a drafter; where both fit one device, let them "
            "share it (model.target_devices 0): 2 drafters with their targets then train up to 1.8 times as "
            "many batches as one drafter with a target device of its own",
        ),
        (
            found(waiting=0.0, target=0.02, devices=3),
            "own devices",
            "the drafter is the bottleneck, and its 3 target devices stand idle 93.3 % of the time: a batch "
            "takes 20 ms of a target device and 100 ms of a drafter; where both fit one device, let them "
            "share it (model.target_devices 0): 4 drafters with their targets then train up to 3.3 times as "
            "many batches as one drafter with 3 target devices of its own",
        ),
        (found(waiting=0.0, target=0.01), "drafter's device", None),
        (
            found(target=0.3, devices=1),
            "own devices",
            "training waits 30.0 % of its time for batches; the bottleneck is the target: a batch takes "
            "300 ms of a target device and 100 ms of a drafter, so 3.0 target devices per drafter would "
            "balance them, and there are 1 (model.target_devices; of 8 devices: 6 + 2)",
        ),
        (
            found(target=6.0, drafter=2.0),  # seconds where they are long
            "own devices",
            "training waits 30.0 % of its time for batches; the bottleneck is the target: a batch takes "
            "6.00 s of a target device and 2.00 s of a drafter, so 3.0 target devices per drafter would "
            "balance them, and there are 1 (model.target_devices; of 8 devices: 6 + 2)",
        ),
        (
            found(target=0.3),
            "drafter's device",
            "training waits 30.0 % of its time for batches; the bottleneck is the target, which shares "
            "the drafter's device: a batch takes 300 ms there, and 100 ms of the drafter; more of these "
            "devices, or devices of its own (model.target_devices), make training faster",
        ),
        (
            found(feed=0.2),
            "own devices",
            "training waits 30.0 % of its time for batches; the bottleneck is the feed: a token batch "
            "takes 200 ms, a drafter's step on it 100 ms; raise data.num_workers, or put the store on a "
            "faster disk",
        ),
        (
            found(target=0.15, devices=2),
            "own devices",
            "training waits 30.0 % of its time for batches; the bottleneck is that costs vary: feed (10 "
            "ms a batch), target (150 ms on each of 2 devices) and drafter (100 ms) are fast enough on "
            "average; let PrefetchBalance go deeper (max_depth, memory_gib), or deliver ready_first",
        ),
        (
            found(target=0.05),  # one target: ready_first delivers as in_order does
            "drafter's device",
            "training waits 30.0 % of its time for batches; the bottleneck is that costs vary: feed (10 "
            "ms a batch), target (50 ms on 1 device) and drafter (100 ms) are fast enough on average; let "
            "PrefetchBalance go deeper (max_depth, memory_gib)",
        ),
        (found(waiting=0.0, target=0.01), "disk", None),
        (
            found(target=0.3),
            "disk",
            "training waits 30.0 % of its time for batches; the bottleneck is reading hidden states: a "
            "batch takes 300 ms to read, and 100 ms of the drafter; put them (model.hidden_states) on a "
            "faster disk, or let the target compute them (model.hidden_states null)",
        ),
        (
            found(target=0.05),
            "disk",
            "training waits 30.0 % of its time for batches; the bottleneck is that costs vary: feed (10 "
            "ms a batch), reading hidden states (50 ms) and drafter (100 ms) are fast enough on average; "
            "let PrefetchBalance go deeper (max_depth, memory_gib)",
        ),
    ],
)  # fmt: skip
def test_what_is_said(rates, states_from, words):
    assert advice(rates, states_from) == words


@pytest.mark.parametrize(
    ("devices", "balance", "expected"),
    [
        (8, 1.0, (4, 4)),
        (8, 2.8, (6, 2)),
        (8, 3.0, (6, 2)),
        (8, 7.0, (7, 1)),
        (8, 0.1, (4, 4)),
        (2, 3.0, (1, 1)),
    ],
)
def test_the_best_split(devices, balance, expected):
    assert split(devices, balance) == expected


@given(st.integers(2, 16), st.floats(0.05, 20))
def test_no_split_is_faster(devices, balance):
    def batches_per_second(targets, drafters):
        return min(targets / balance, drafters)

    targets, drafters = split(devices, balance)
    assert targets % drafters == 0
    assert targets + drafters <= devices
    for d in range(1, devices):
        for t in range(d, devices - d + 1, d):
            assert batches_per_second(t, d) <= batches_per_second(targets, drafters)
