"""One plan's facts, as text and as JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dflash_lightning.plan import DiversityFirst, MixedBuckets, RandomOrder, Samples, Shuffle, plan_epoch
from dflash_lightning.plan_view.as_json import as_values
from dflash_lightning.plan_view.facts import gather_facts
from dflash_lightning.plan_view.geometry import geometry_of
from dflash_lightning.plan_view.model_settings import ModelSettings
from dflash_lightning.plan_view.table import as_text
from tests.toy import toy_config

MODEL = ModelSettings(target="toy", shape={"num_layers": 2})


@pytest.fixture(scope="module")
def facts(samples, settings):
    geometry = geometry_of(toy_config(), MODEL, block_size=4)
    run = replace(settings, model=MODEL, max_epochs=3, rate=lambda share: 1 - share, notes=("assumed it",))
    return gather_facts(samples, run, geometry)


def test_the_plan_is_the_one_that_training_makes(facts, samples, settings):
    again = plan_epoch(samples, settings.plan, num_anchors=16, block_size=4, seed=0, epoch=0)
    assert facts.plan.digest == again.digest
    assert facts.judgement.summary.digest == again.digest


def test_the_yardstick_is_the_same_batches_shuffled(samples, settings):
    shuffled = replace(settings, plan=replace(settings.plan, order=Shuffle()))
    facts = gather_facts(samples, shuffled, None)
    assert facts.shuffled == facts.judgement.mix


def test_json_is_flat_plain_and_whole(facts):
    values = json.loads(json.dumps(as_values(facts)))
    judgement = facts.judgement
    assert values["samples"] == 3500
    assert values["tokens"] == sum(bucket["tokens"] for bucket in values["buckets"])
    assert values["batches"] == sum(bucket["batches"] for bucket in values["buckets"])
    assert values["padding_efficiency"] == values["tokens"] / values["padded_tokens"]
    assert values["steps_per_epoch"] == -(-values["batches"] // 8)
    assert values["steps"] == 3 * values["steps_per_epoch"]
    assert values["steps_exact"] is False
    assert (values["window_tv_mean"], values["window_tv_max"]) == (
        judgement.mix.tv_mean,
        judgement.mix.tv_max,
    )
    assert values["window_tv_mean_shuffled"] == facts.shuffled.tv_mean
    assert np.array(values["tenths"]).shape == (10, 3)
    assert values["straggler_linear"] == judgement.balance.linear
    assert values["straggler_micro_blocks"] == judgement.balance.micro_blocks
    assert values["over_budget"] == 0
    assert values["learning_rate"]["peak"] == values["learning_rate"]["first"]
    assert values["memory"]["batch"] > values["memory"]["hidden_states"] > 0
    assert values["static_shapes"] is None
    assert values["notes"] == ["assumed it"]
    assert {"low", "high", "samples", "tokens", "batches", "rows", "padding_efficiency"} <= set(
        values["buckets"][0]
    )


def test_an_empty_bucket_has_no_ratios(settings):
    samples = Samples(np.full(20, 50), np.full(20, 20))  # nothing between 61 and 400 tokens
    facts = gather_facts(samples, settings, None)
    assert [bucket["rows"] for bucket in as_values(facts)["buckets"]][1:] == [None, None]
    assert [bucket["padding_efficiency"] for bucket in as_values(facts)["buckets"]][1:] == [None, None]
    assert "101 - 400        0       0        0    0.0%           -                   -" in as_text(
        facts, source="x"
    )


def test_the_page_says_it_all(facts):
    page = as_text(facts, source="a store")
    summary = facts.judgement.summary
    assert f"plan {summary.digest} of a store" in page
    assert "one optimizer step is 2 ranks x 4 batches\nassumed it" in page
    assert ["all", "3,500", f"{summary.tokens:,}"] in [line.split()[:3] for line in page.splitlines()]
    assert f"longest run               {summary.longest_run} batch" in page
    assert f"TV to the epoch's mix     mean {facts.judgement.mix.tv_mean:.3f}, worst" in page
    assert f"steps of the run          about {facts.run.steps:,}" in page
    assert "learning rate             first 0.99" in page
    assert "Memory of a rank, estimated\n  batch that needs most" in page
    assert page.count("\n") < 60
    assert all(line == line.rstrip() for line in page.splitlines())


def test_static_shapes_say_what_they_cost(samples, settings):
    facts = gather_facts(samples, replace(settings, plan=replace(settings.plan, static_shapes=True)), None)
    dynamic = gather_facts(samples, settings, None).judgement.summary
    summary = facts.judgement.summary
    assert as_values(facts)["static_shapes"] == {
        "batches_without": dynamic.batches,
        "padding_efficiency_without": dynamic.padding_efficiency,
    }
    assert summary.padding_efficiency < dynamic.padding_efficiency
    assert (
        f"static shapes cost        {summary.batches:,} batches at padding efficiency "
        f"{summary.padding_efficiency:.1%}, without {dynamic.batches:,} at {dynamic.padding_efficiency:.1%}"
    ) in as_text(facts, source="x")


def test_warnings_come_along(samples, settings):
    diverse = replace(settings, plan=replace(settings.plan, order=DiversityFirst()))
    facts = gather_facts(samples, diverse, None)
    assert "come from bucket 2" in as_values(facts)["warnings"][0]


def test_what_was_left_out_is_counted(samples, settings):
    facts = gather_facts(samples, replace(settings, plan=replace(settings.plan, min_length=50)), None)
    dropped = int((samples.lengths < 50).sum())
    assert f"{dropped:,} samples left out by length, 0 cut to the last edge" in as_text(facts, source="x")
    assert as_values(facts)["dropped"] == dropped


@pytest.mark.parametrize(("packing", "mixes"), [(MixedBuckets(), True), (RandomOrder(), False)])
def test_batches_of_mixed_lengths_are_said_to_be(samples, settings, packing, mixes):
    facts = gather_facts(samples, replace(settings, plan=replace(settings.plan, packing=packing)), None)
    page = as_text(facts, source="x")
    assert ("batches mix lengths: a batch counts as of its longest row's bucket" in page) is mixes
    assert as_values(facts)["mixes_buckets"] is mixes


def test_the_runs_of_the_largest_bucket_are_told(samples, settings):
    """spec/batching.md 2.1: with shuffling a batch of the largest bucket typically sits in a run."""
    shuffled = replace(settings, plan=replace(settings.plan, order=Shuffle()))
    facts = gather_facts(samples, shuffled, None)
    values, batches = as_values(facts), facts.judgement.summary.buckets[2].batches
    runs = {row["low"]: row["batches"] for row in values["runs_of_largest"]}
    assert (values["largest_bucket"], sum(runs.values())) == (2, batches)
    page = as_text(facts, source="x")
    assert f"runs of bucket 2          of its batches {runs[1] / batches:.1%} alone, " in page
    assert f", {runs[2] / batches:.1%} in 2s, " in page
    assert f"{runs[10] / batches:.1%} in 10 or more" in page


def test_what_a_dropped_tail_loses_is_counted(samples, settings):
    split = gather_facts(samples, replace(settings, world=7), None)
    drop = gather_facts(samples, replace(settings, world=7, plan=replace(settings.plan, tail="drop")), None)
    batches = split.plan.num_batches
    lost = sum(len(split.plan.batch(i)) for i in range(batches // 7 * 7, batches))
    assert lost > 0
    assert (as_values(split)["lost_to_tail"], as_values(drop)["lost_to_tail"]) == (0, lost)
    assert f"lost to the tail          {lost} sample" in as_text(drop, source="x")
    assert "lost to the tail" not in as_text(split, source="x")


def test_more_ranks_than_samples_are_refused_as_training_refuses_them(settings):
    two = Samples(np.array([5, 6]), np.array([1, 1]))
    with pytest.raises(ValueError, match="2 samples cannot feed 3 ranks"):
        gather_facts(two, replace(settings, world=3), None)


def test_an_unknown_target_is_said(samples, settings):
    facts = gather_facts(samples, replace(settings, model=MODEL), "unknown: no config")
    assert "Memory of a rank, estimated\n  all                       unknown: no config" in as_text(
        facts, source="x"
    )
    assert as_values(facts)["memory"] is None
    assert as_values(facts)["memory_unknown"] == "unknown: no config"
