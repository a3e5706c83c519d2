import math

import pytest

from dflash_lightning.decoding.acceptance import acceptance_length, tau


def test_pooled_and_mean_differ_where_answers_differ_in_length():
    got = acceptance_length([(4, 4, 4, 4), (1, 1), ()])
    assert (got.prompts, got.rounds, got.tokens) == (2, 6, 18)
    assert got.pooled == 3.0
    assert got.mean == 2.5
    assert got.first32 == 3.0


def test_first32_ignores_the_loop_at_the_end():
    rounds = (1,) * 31 + (8,) * 20  # a model that falls into repetition after 32 tokens
    got = acceptance_length([rounds])
    assert got.first32 == 1.0
    assert got.pooled == pytest.approx(191 / 51)


def test_first32_cuts_the_round_that_crosses_the_limit():
    assert acceptance_length([(8, 8, 8, 8, 8)]).first32 == 31 / 4  # the 32nd token ends the fourth round


def test_no_rounds_is_not_a_number():
    got = acceptance_length([(), ()])
    assert got.prompts == got.rounds == got.tokens == 0
    assert all(math.isnan(value) for value in (got.pooled, got.mean, got.first32, tau(())))
