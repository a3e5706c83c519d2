"""Strategies side by side."""

from dataclasses import replace

import pytest

from dflash_lightning.plan_view.compare import compare, compare_text, compare_values, compared_settings
from dflash_lightning.plan_view.facts import gather_facts

NAMES = "credit,diversity_first,shuffle,random_order,window_first,super_buckets:2"


@pytest.fixture(scope="module")
def compared(samples, settings):
    return compare(samples, compared_settings(settings, NAMES))


def test_each_strategy_is_planned_as_if_alone(compared, samples, settings):
    for name, alone in compared_settings(settings, NAMES).items():
        assert compared[name].plan.digest == gather_facts(samples, alone, None).plan.digest
    assert len({facts.plan.digest for facts in compared.values()}) == len(compared)


def test_a_line_per_strategy_in_both_tables(compared):
    text = compare_text(compared, source="a store")
    assert text.startswith("6 strategies for a store; seed 0, epoch 0\n")
    lines = text.splitlines()
    for name, facts in compared.items():
        order, window = (line.split() for line in lines if line.split()[:1] == [name])
        summary, mix, balance = facts.judgement.summary, facts.judgement.mix, facts.judgement.balance
        assert order[1:5] == [
            f"{summary.batches:,}",
            f"{summary.padding_efficiency:.1%}",
            f"{summary.longest_run:,}",
            f"{summary.final_run:,}",
        ]
        assert window[1:5] == [
            *(f"{tv:.3f}" for tv in (mix.tv_mean, mix.tv_max, facts.shuffled.tv_mean, mix.tv_floor))
        ]
        assert window[-3:] == [f"{f:.3f}" for f in (balance.linear, balance.quadratic, balance.blocks)]


def test_interleaving_is_measured_against_chance(compared):
    text = compare_text(compared, source="a store")
    assert "Windows of 8 batches: 2 ranks x accumulation 4" in text
    assert "against its own batches shuffled" in text
    assert text.endswith("Worse than chance: diversity_first.")
    ratios = {line.split()[0]: line.split()[5] for line in text.splitlines() if "1.0" in line and "%" in line}
    assert ratios["shuffle"] == "1.00"
    assert float(ratios["credit"]) < 0.7


def test_batches_of_mixed_lengths_are_not_taken_for_those_of_a_bucket(compared, samples, settings):
    note = "By the longest row of each batch, since they mix lengths: "
    assert f"{note}window_first.\n" in compare_text(compared, source="x")
    assert note not in compare_text(compare(samples, compared_settings(settings, "credit")), source="x")
    assert [row["mixes_buckets"] for row in compare_values(compared)] == [False] * 4 + [True, False]


def test_json_has_all_that_one_plan_prints(compared):
    values = compare_values(compared)
    assert [row["strategy"] for row in values] == NAMES.split(",")
    assert values[1]["longest_run"] == compared["diversity_first"].judgement.runs.longest_run
    assert values[5]["buckets"][-1]["high"] == 400


def test_windows_of_one_batch_cannot_mix(samples, settings):
    single = replace(settings, world=1, accumulate=1)
    text = compare_text(compare(samples, compared_settings(single, "credit,shuffle")), source="x")
    assert text.endswith("holds one bucket in any order: raise --accumulate or --world-size.")


@pytest.mark.parametrize("names", ["credit,credit", "", ","])
def test_names_differ(settings, names):
    with pytest.raises(ValueError, match="--compare takes different names joined by commas"):
        compared_settings(settings, names)
