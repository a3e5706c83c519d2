from math import isfinite

import pytest

from dflash_lightning.evaluation.speculation import (
    Speculation,
    counters,
    from_counters,
    from_gauge,
    from_server_info,
)

BEFORE = """\
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 5.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1e1
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 7.0
up 1
"""
AFTER = """\
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 20.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 25.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 55.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 31.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 21.0
"""


def test_counters_are_added_over_engines_and_kept_by_slot():
    found = counters(BEFORE)
    assert found["vllm:spec_decode_num_drafts"] == 15
    assert found["vllm:spec_decode_num_accepted_tokens"] == 10
    assert found["vllm:spec_decode_num_accepted_tokens_per_pos[0]"] == 7
    assert found["up"] == 1
    assert counters("no/page at/all") == {}


@pytest.mark.parametrize("value", ["NaN", "what", "+Inf", "1e999", "{", "9" * 400])
def test_a_sum_with_a_value_that_is_no_number_is_none(value):
    found = counters(f'{BEFORE}vllm:spec_decode_num_drafts_total{{engine="2"}} {value}\nbroken {value}\n')
    assert not isfinite(found["vllm:spec_decode_num_drafts"])
    assert found["vllm:spec_decode_num_accepted_tokens"] == 10


def test_what_the_run_added_counts():
    found = from_counters(BEFORE, AFTER)
    assert found == Speculation(1 + 45 / 30, "vLLM's counters, over this run", 30, (24 / 30, 21 / 30))


@pytest.mark.parametrize("before", ["", "Service starting\n", "<html>"])
def test_without_a_first_page_the_time_is_another_and_is_said_to_be(before):
    found = from_counters(before, AFTER)
    assert found == Speculation(
        1 + 55 / 45, "vLLM's counters, since the server started", 45, (31 / 45, 21 / 45)
    )


def test_a_server_that_had_not_drafted_yet_counts_over_the_run():
    assert from_counters("up 1\n", AFTER).source == "vLLM's counters, over this run"


PAGE = """\
vllm:spec_decode_num_drafts_total {drafts}
vllm:spec_decode_num_drafts_created {created}
vllm:spec_decode_num_accepted_tokens_total {accepted}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="0"}} {first}
"""
USUAL = {"drafts": "20", "created": "1.7e+09", "accepted": "30", "first": "15"}


@pytest.mark.parametrize("value", ["NaN", "nan", "+Inf", "-Inf", "1e999", "what", "-1"])
@pytest.mark.parametrize("name", ["drafts", "accepted", "first"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_garbage_among_the_counters_says_nothing(name, value, when):
    spoilt = PAGE.format(**{**USUAL, name: value})
    if when == "after":
        assert from_counters("up 1\n", spoilt) is None
    elif value not in ("-1", "-Inf"):  # grown from less than nothing
        assert from_counters(spoilt, PAGE.format(**{**USUAL, "drafts": "90", "accepted": "99"})) is None


def test_a_server_that_was_restarted_on_the_way_says_nothing():
    before = PAGE.format(**{**USUAL, "accepted": "900"})
    assert from_counters(before, PAGE.format(**{**USUAL, "drafts": "21"})) is None
    later = PAGE.format(**{**USUAL, "drafts": "25", "accepted": "36", "created": "1.6e+09"})
    assert from_counters(PAGE.format(**USUAL), later).tau == 1 + 6 / 5  # when a counter began is no count


def test_drafts_without_accepted_tokens_say_nothing():
    assert from_counters("up 1\n", "vllm:spec_decode_num_drafts_total 20\n") is None


@pytest.mark.parametrize(("before", "after"), [(AFTER, AFTER), ("", ""), ("", "up 1\n"), (AFTER, BEFORE)])
def test_nothing_drafted_nothing_said(before, after):
    assert from_counters(before, after) is None


def test_sglangs_gauge_is_averaged_over_ranks():
    page = 'sglang:spec_accept_length{tp_rank="0"} 2.0\nsglang:spec_accept_length{tp_rank="1"} 3.0\n'
    assert from_gauge(page).tau == 2.5
    assert from_gauge('sglang:spec_accept_length{tp_rank="0"} 0.0\n') is None  # it serves without a drafter
    assert from_gauge("") is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "what", "-1", "0.0", "1e999"])
def test_a_rank_whose_gauge_makes_no_sense_is_left_out(value):
    broken = f'sglang:spec_accept_length{{tp_rank="0"}} {value}\n'
    assert from_gauge(broken) is None
    assert from_gauge(f'{broken}sglang:spec_accept_length{{tp_rank="1"}} 3.0\n').tau == 3.0


@pytest.mark.parametrize(
    ("body", "tau"),
    [
        (
            '{"internal_states": [{"avg_spec_accept_length": 3.0}, {"avg_spec_accept_length": 4.0}]}',
            3.5,
        ),
        ('{"internal_states": [{"avg_spec_accept_length": null}]}', None),
        ('{"internal_states": [{"load": 1}]}', None),
        ('{"internal_states": [{"load": 1}, {"avg_spec_accept_length": 4}]}', 4.0),
        ('{"internal_states": [{"avg_spec_accept_length": 4}, {"avg_spec_accept_length": NaN}]}', 4.0),
        ('{"internal_states": [{"avg_spec_accept_length": NaN}]}', None),
        ('{"internal_states": [{"avg_spec_accept_length": Infinity}]}', None),
        ('{"internal_states": [{"avg_spec_accept_length": 1e999}]}', None),
        pytest.param(f'{{"internal_states": [{{"avg_spec_accept_length": 1{"0" * 400}}}]}}', None, id="huge"),
        ('{"internal_states": [{"avg_spec_accept_length": true}]}', None),
        ('{"internal_states": [{"avg_spec_accept_length": "what"}]}', None),
        ('{"internal_states": [{"avg_spec_accept_length": [3]}]}', None),
        ('{"internal_states": null}', None),
        pytest.param("[" * 200_000, None, id="deep brackets"),
        ('{"version": "1"}', None),
        ("[1]", None),
        ("", None),
    ],
)
def test_sglangs_server_info(body, tau):
    found = from_server_info(body)
    assert (found and found.tau) == tau
