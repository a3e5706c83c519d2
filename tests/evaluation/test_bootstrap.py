from math import isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.evaluation.bootstrap import differences, fewest_prompts, paired_bootstrap

ROUNDS = st.lists(st.integers(1, 8), min_size=1, max_size=6)


def difference_by_hand(sums, drawn):
    totals = [0, 0, 0, 0]
    for prompt in drawn:
        for column in range(4):
            totals[column] += sums[prompt][column]
    return totals[2] / totals[3] - totals[0] / totals[1]


@settings(deadline=None, max_examples=30)
@given(data=st.data(), pairs=st.lists(st.tuples(ROUNDS, ROUNDS), min_size=1, max_size=5))
def test_a_sample_is_the_loop_over_its_prompts(data, pairs):
    sums = np.array([[sum(a), len(a), sum(b), len(b)] for a, b in pairs])
    prompt = st.integers(0, len(pairs) - 1)
    drawn = data.draw(
        st.lists(st.lists(prompt, min_size=len(pairs), max_size=len(pairs)), min_size=1, max_size=4)
    )
    expected = [difference_by_hand(sums.tolist(), one) for one in drawn]
    assert differences(sums, np.array(drawn)).tolist() == pytest.approx(expected)


def slow_bootstrap(rounds_a, rounds_b, *, resamples, seed):
    """One sample at a time, sorted and counted off."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(resamples):
        drawn = [int(i) for i in rng.integers(len(rounds_a), size=len(rounds_a))]
        a = [n for i in drawn for n in rounds_a[i]]
        b = [n for i in drawn for n in rounds_b[i]]
        found.append(sum(b) / len(b) - sum(a) / len(a))
    found.sort()
    return found[round(0.025 * (resamples - 1))], found[round(0.975 * (resamples - 1))]


def some_rounds(seed, mean, prompts=30):
    rng = np.random.default_rng(seed)
    return [rng.poisson(mean, size=rng.integers(3, 12)).clip(1).tolist() for _ in range(prompts)]


def test_the_interval_is_that_of_the_slow_bootstrap():
    a, b = some_rounds(1, 2.0), some_rounds(2, 2.6)
    fast = paired_bootstrap(a, b, resamples=2001, seed=7)
    low, high = slow_bootstrap(a, b, resamples=2001, seed=7)
    assert (fast.low, fast.high) == pytest.approx((low, high), abs=0.01)
    assert fast.low < fast.difference < fast.high


def test_the_seed_decides_and_pieces_do_not(monkeypatch):
    a, b = some_rounds(1, 2.0), some_rounds(2, 2.2)
    whole = paired_bootstrap(a, b, resamples=500, seed=3)
    monkeypatch.setattr("dflash_lightning.evaluation.bootstrap.CELLS_AT_ONCE", 30 * 7)
    assert paired_bootstrap(a, b, resamples=500, seed=3) == whole
    assert paired_bootstrap(a, b, resamples=500, seed=4) != whole


def test_pairing_sees_a_small_difference_that_prompts_hide():
    easy_and_hard = [[1] * 10, [8] * 10] * 15
    a_little_better = [[*rounds[:-1], rounds[-1] + 1] for rounds in easy_and_hard]
    paired = paired_bootstrap(easy_and_hard, a_little_better, resamples=500)
    assert paired.decided
    assert paired.difference == pytest.approx(0.1)
    assert not paired_bootstrap(
        easy_and_hard, a_little_better[1:] + a_little_better[:1], resamples=500
    ).decided


def test_the_same_drafter_twice_differs_by_nothing():
    found = paired_bootstrap(some_rounds(1, 2.0), some_rounds(1, 2.0), resamples=50)
    assert (found.difference, found.low, found.high, found.decided) == (0.0, 0.0, 0.0, False)


def test_prompts_without_a_round_are_left_out():
    found = paired_bootstrap([[2, 2], [], [3], [2]], [[4, 4], [1], [], [4]], resamples=20)
    assert (found.difference, found.low, found.high, found.prompts) == (2.0, 2.0, 2.0, 2)


@pytest.mark.parametrize(("prompts", "decided"), [(1, False), (2, False), (5, False), (6, True), (20, True)])
@pytest.mark.parametrize("better", ["a", "b"])
def test_few_prompts_decide_nothing_though_all_agree(prompts, decided, better):
    worse, best = [[2, 2]] * prompts, [[4, 4]] * prompts
    a, b = (best, worse) if better == "a" else (worse, best)
    found = paired_bootstrap(a, b, resamples=20)
    assert (found.prompts, found.enough, found.decided) == (prompts, decided, decided)
    assert abs(found.difference) == 2.0


def test_one_prompt_has_a_difference_but_no_interval_and_none_has_neither():
    one = paired_bootstrap([[2]], [[3]])
    assert (one.difference, isnan(one.low), isnan(one.high), one.decided) == (1.0, True, True, False)
    none = paired_bootstrap([[], []], [[1], []])
    assert (isnan(none.difference), isnan(none.low), none.prompts, none.decided) == (True, True, 0, False)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_the_fewest_prompts_are_those_that_chance_seldom_makes_agree(confidence):
    fewest = fewest_prompts(confidence)
    assert 2 * 0.5**fewest <= 1 - confidence + 1e-12 < 2 * 0.5 ** (fewest - 1)
    assert fewest_prompts(0.95) == 6


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([[1]], [[1], [2]], "needs the same prompts, got 1 and 2"),
        ([], [[2]], "needs the same prompts, got 0 and 1"),
    ],
)
def test_mistakes_are_refused(a, b, message):
    with pytest.raises(ValueError, match=message):
        paired_bootstrap(a, b)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, -0.5])
def test_a_confidence_is_a_share(confidence):
    with pytest.raises(ValueError, match=f"confidence is a share between 0 and 1, got {confidence}"):
        paired_bootstrap([[1]], [[2]], confidence=confidence)
