import pytest

from dflash_lightning.evaluation.first_token import first_token_s

PAGE = """\
vllm:time_to_first_token_seconds_bucket{{engine="0",le="0.1"}} 3
vllm:time_to_first_token_seconds_sum{{engine="0"}} {seconds}
vllm:time_to_first_token_seconds_sum{{engine="1"}} 2.0
vllm:time_to_first_token_seconds_count{{engine="0"}} {answers}
vllm:time_to_first_token_seconds_count{{engine="1"}} 4
"""


def page(seconds, answers):
    return PAGE.format(seconds=seconds, answers=answers)


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [
        (page(1.0, 10), page(3.0, 14), 0.5),
        ("up 1\n", page(1.0, 1), 0.6),  # it had answered nothing yet
        ("", page(3.0, 14), None),  # a page that was not read: the mean would be of the server's whole life
        (page(1.0, 10), "", None),
        (page(1.0, 10), page(1.0, 10), None),  # nothing was asked
        (page(5.0, 10), page(1.0, 12), None),  # started anew
        (page(5.0, 10), page(6.0, 2), None),
        (page("NaN", 10), page(6.0, 12), None),
        (page(1.0, 10), page("what", 12), None),
        (page(1.0, 10), page(2.0, "+Inf"), None),
        ("up 1\n", 'sglang:time_to_first_token_seconds_sum{x="0"} 3\n', None),
    ],
)
def test_the_mean_over_the_run(before, after, seconds):
    assert first_token_s(before, after) == pytest.approx(seconds)
