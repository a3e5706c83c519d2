"""Speeds and latencies of replies: tables, and laws."""

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.evaluation.answered import Reply, Served, both_answered, seconds_under_way


def reply(started, seconds, tokens=10, *, category="all", failure=""):
    tokens = 0 if failure else tokens
    return Reply(category, float(seconds), tokens, failure, float(started))


def served(*replies):
    return Served("http://h", "toy", replies, None)


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0.0),
        ([(0, 2)], 2.0),
        ([(0, 2), (2, 3)], 5.0),  # one after the other
        ([(0, 2), (0, 2)], 2.0),  # at once
        ([(0, 9), (1, 2)], 9.0),  # one within the other
        ([(1, 2), (0, 2)], 3.0),
        ([(0, 1), (600, 1)], 2.0),  # nothing was under way in between
    ],
)
def test_seconds_under_way(spans, seconds):
    assert seconds_under_way([reply(*span) for span in spans]) == seconds


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=8))
def test_seconds_under_way_are_the_seconds_counted_off(spans):
    counted = {second for start, length in spans for second in range(start, start + length)}
    assert seconds_under_way([reply(*span) for span in spans]) == len(counted)


def test_a_request_that_timed_out_puts_its_wait_into_no_speed():
    fine = [reply(0, 1), reply(1, 1)]
    waited = [reply(0, 1), reply(1, 600, failure="TimeoutError"), reply(601, 1)]
    for speed in ("tokens_per_s", "request_tokens_per_s"):
        assert getattr(served(*waited), speed) == getattr(served(*fine), speed) == 10.0
    assert served(*waited).latency(1.0) == 1.0


def test_servers_are_compared_over_the_prompts_that_both_answered():
    first = served(reply(0, 1, 10), reply(1, 1, 90), reply(2, 1, failure="500"), reply(3, 1, 10))
    second = served(reply(0, 2, 10), reply(2, 2, failure="500"), reply(4, 2, 90), reply(6, 2, 10))
    one, other = both_answered(first, second)
    assert [(r.tokens, r.seconds) for r in one.replies] == [(10, 1), (10, 1)]
    assert [(r.tokens, r.seconds) for r in other.replies] == [(10, 2), (10, 2)]
    assert one.tokens_per_s / other.tokens_per_s == 2.0
    assert one.request_tokens_per_s / other.request_tokens_per_s == 2.0


def test_categories_share_out_the_replies():
    whole = served(
        reply(0, 1, 10, category="b"),
        reply(1, 4, 20, category="a"),
        reply(5, 3, 30, category="b"),
        reply(8, 9, category="c", failure="500"),
    )
    parts = whole.by_category
    assert {name: (len(part.replies), part.tokens) for name, part in parts.items()} == {
        "a": (1, 20),
        "b": (2, 40),
        "c": (1, 0),
    }
    assert (parts["b"].latency(0.5), parts["b"].request_tokens_per_s) == (2.0, 10.0)
    empty = parts["c"]
    assert all(map(isnan, (empty.latency(0.5), empty.request_tokens_per_s, empty.tokens_per_s)))
    assert served(reply(0, 1), reply(1, 1)).by_category == {}
