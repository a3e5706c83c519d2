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
    assert counters("no page at all\nx NaNsense") == {}


def test_what_the_run_added_counts():
    found = from_counters(BEFORE, AFTER)
    assert found == Speculation(1 + 45 / 30, "vLLM's counters, over this run", 30, (24 / 30, 21 / 30))


@pytest.mark.parametrize(("before", "after"), [(AFTER, AFTER), ("", ""), ("", "up 1\n"), (AFTER, BEFORE)])
def test_nothing_drafted_nothing_said(before, after):
    assert from_counters(before, after) is None


def test_sglangs_gauge_is_averaged_over_ranks():
    page = 'sglang:spec_accept_length{tp_rank="0"} 2.0\nsglang:spec_accept_length{tp_rank="1"} 3.0\n'
    assert from_gauge(page).tau == 2.5
    assert from_gauge('sglang:spec_accept_length{tp_rank="0"} 0.0\n') is None  # it serves without a drafter
    assert from_gauge("") is None


@pytest.mark.parametrize(
    ("body", "tau"),
    [
        (
            '{"internal_states": [{"avg_spec_accept_length": 3.0}, {"avg_spec_accept_length": 4.0}]}',
            3.5,
        ),
        ('{"internal_states": [{"avg_spec_accept_length": null}]}', None),
        ('{"internal_states": [{"load": 1}]}', None),
        ('{"version": "1"}', None),
        ("[1]", None),
        ("", None),
    ],
)
def test_sglangs_server_info(body, tau):
    found = from_server_info(body)
    assert (found and found.tau) == tau
