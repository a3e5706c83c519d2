"""Runs whose cause is known get the verdict of that cause, whatever the seed."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dflash_lightning.report.read import read_run
from dflash_lightning.report.run import Run
from dflash_lightning.report.verdict import KINDS, Verdict, judge_run
from tests.report.judged import SEEDS, STEPS, kinds, of_kind, verdicts
from tests.report.synthetic import (
    as_run,
    diverging,
    foreign_lines,
    foreign_run,
    laddered,
    run_of,
    sampled_lines,
    shuffled,
    smooth,
    spiking,
    stalling,
    train,
    window_means,
)


class TestMix:
    @pytest.mark.parametrize(
        "make",
        [
            lambda seed: as_run(train(seed, steps=STEPS)),
            lambda seed: as_run(train(seed, steps=STEPS), micro=False),
            lambda seed: as_run(shuffled(seed, steps=1000), micro=False, log_every=10),
            lambda seed: foreign_run(foreign_lines(train(seed, steps=STEPS), "seq_len")),
        ],
        ids=["single batches", "windows", "windows of ten steps", "another trainer's lengths"],
    )
    def test_a_loss_that_depends_on_the_bucket_only(self, make):
        assert all(kinds(make(seed)) == ("mix",) for seed in SEEDS)

    def test_names_the_documented_bands(self):
        headline = judge_run(as_run(train(0, falls=False)))[0].headline
        assert re.search(
            r"three bands: 0.5\d \(bucket 0\), 1.0\d \(buckets 1-4\), 1.6\d \(bucket 5\)", headline
        )

    def test_finds_the_ranges_where_only_lengths_were_logged(self):
        headline = judge_run(foreign_run(foreign_lines(train(0, falls=False), "seq_len")))[0].headline
        assert "three bands: 0.5" in headline
        assert "(1,2" in headline  # bucket 0 ends at 1,216 tokens


class TestInstability:
    @pytest.mark.parametrize("make", [train, smooth, shuffled])
    def test_names_the_step_of_a_divergence(self, make):
        for found in verdicts(lambda seed: as_run(diverging(make(seed, steps=STEPS), 250))):
            verdict = of_kind(found, "instability")
            assert found[0] is verdict
            assert abs(verdict.steps[0] - 250) <= 2
            assert f"at step {verdict.steps[0]}" in verdict.headline

    @pytest.mark.parametrize(
        ("make", "log"),
        [(train, {}), (train, {"micro": False}), (smooth, {}), (smooth, {"micro": False}), (smooth, None)],
        ids=["all of a mix", "windows of a mix", "all", "windows", "the loss alone"],
    )
    def test_a_loss_that_climbs_slowly(self, make, log):
        """It has no place where it jumps: half as much again in 200 steps."""
        for seed in range(8):
            training = make(seed, steps=STEPS)
            later = 0.003 * np.maximum(0, training.steps - 200)
            training = replace(training, loss=training.loss + later[:, None])
            run = foreign_run(foreign_lines(training)) if log is None else as_run(training, **log)
            verdict = of_kind(judge_run(run), "instability")
            assert "the loss climbs by" in verdict.headline
            assert 150 <= verdict.steps[0] <= 270

    def test_a_steep_first_fall_leaves_no_rise_behind_it(self):
        """A run of configs/tiny.yaml: from 45 to 3 in ten steps, in each bucket at a pace of its own."""
        run = read_run(Path(__file__).with_name("steep_fall.csv"))
        assert run.values["train/loss"][:4] == pytest.approx([45.484, 34.264, 5.7711, 2.9666], rel=1e-3)
        assert kinds(run) == ("steady",)

    def test_finds_it_beside_the_mix(self):
        assert all(
            kinds(as_run(diverging(train(seed, steps=STEPS), 250))) == ("instability", "mix")
            for seed in SEEDS
        )

    def test_in_a_log_of_every_ten_steps(self):
        for found in verdicts(lambda seed: as_run(diverging(train(seed), 400), micro=False, log_every=10)):
            assert abs(of_kind(found, "instability").steps[0] - 400) <= 10

    def test_in_a_log_of_losses_alone(self):
        for found in verdicts(lambda seed: foreign_run(foreign_lines(diverging(smooth(seed), 400)))):
            assert abs(of_kind(found, "instability").steps[0] - 400) <= 2

    def test_in_one_bucket_of_a_mix_that_jumps_more_than_the_rise(self):
        """0.2 more is half of what single batches jump by; the mix taken out, it stands clear."""
        for found in verdicts(lambda seed: as_run(diverging(train(seed, steps=STEPS), 250, by=0.2))):
            assert abs(of_kind(found, "instability").steps[0] - 250) <= 2

    def test_lists_spikes_that_the_gradient_norm_confirms(self):
        for found in verdicts(lambda seed: as_run(spiking(train(seed, steps=STEPS), [150, 200, 333]))):
            assert of_kind(found, "instability").steps == [150, 200, 333]

    def test_a_gradient_norm_that_breaks_before_the_loss_does(self):
        for found in verdicts(
            lambda seed: as_run(diverging(smooth(seed, steps=STEPS), 250, by=0.0, norm=12.0))
        ):
            verdict = of_kind(found, "instability")
            assert "the loss not yet" in verdict.headline
            assert abs(verdict.steps[0] - 250) <= 2

    def test_a_loss_that_is_no_number(self):
        rows = [
            {"train/step": float(step), "train/loss": np.nan if step == 70 else 2.0 - step / 1000}
            for step in range(1, 101)
        ]
        verdict = of_kind(judge_run(run_of(rows)), "instability")
        assert verdict.steps == [70]
        assert "no finite loss or gradient, first step 70" in verdict.headline


class TestCheckpoint:
    @pytest.mark.parametrize(
        "settings", [{"micro": True}, {"micro": False}, {"micro": False, "log_every": 10}]
    )
    def test_says_which_steps_waited_and_what_it_cost(self, settings):
        for found in verdicts(lambda seed: as_run(stalling(smooth(seed), 150, 140), **settings)):
            verdict = of_kind(found, "checkpoint")
            assert verdict.steps == [150, 300, 450, 600]
            assert "4 times for 560 s in all, 22.6% of the run's time" in verdict.headline

    def test_by_regular_gaps_where_only_times_were_logged(self):
        make = lambda seed: foreign_run(foreign_lines(stalling(smooth(seed), 150, 140), "time"))  # noqa: E731
        for found in verdicts(make):
            assert of_kind(found, "checkpoint").steps == [150, 300, 450, 600]

    def test_says_whether_the_loss_jumps_there_too(self):
        training = stalling(spiking(smooth(0), [150, 300, 450]), 150, 140)
        assert "3 of 3 jumps of the loss" in " ".join(
            of_kind(judge_run(as_run(training)), "checkpoint").evidence
        )

    def test_is_silent_about_waits_below_a_hundredth(self):
        assert kinds(as_run(stalling(smooth(0), 150, 1.0))) == ("steady",)

    def test_is_silent_about_gaps_at_irregular_steps(self):
        lines = foreign_lines(smooth(0), "time")
        for line in lines:
            line["time"] += 140.0 * sum(line["step"] >= step for step in (60, 85, 260, 505))
        assert kinds(foreign_run(lines)) == ("steady",)


class TestPeriodic:
    @pytest.mark.parametrize("period", [8, 25, 120])
    def test_names_the_period_of_a_ladder(self, period):
        for found in verdicts(lambda seed: as_run(laddered(smooth(seed), period), micro=False)):
            verdict = of_kind(found, "periodic")
            named = float(verdict.headline.split(" steps")[0].split()[-1])
            assert named == pytest.approx(period, rel=0.04)

    def test_beside_the_mix(self):
        assert all(kinds(as_run(laddered(train(seed), 75))) == ("periodic", "mix") for seed in SEEDS)

    def test_a_fixed_cycle_over_the_buckets(self):
        steps, cycle = 400, np.array([0, 1, 2, 3, 4, 5, 5])
        rng = np.random.default_rng(0)
        lines = [
            {
                "step": s + 1,
                "loss": (0.55, 1, 1, 1, 1, 1.6, 1.6)[s % 7] + rng.normal(0, 0.05),
                "bucket": cycle[s % 7],
            }
            for s in range(steps)
        ]
        found = judge_run(foreign_run(lines))
        assert "every 7 steps" in of_kind(found, "periodic").headline
        assert "fixed order" in " ".join(of_kind(found, "periodic").evidence)
        assert of_kind(found, "mix")


class TestSamplingArtefact:
    def test_two_batches_every_ten_seconds_give_the_misleading_chart(self):
        """The chart jumps between three bands, while windows move a quarter as much."""
        training = train(0, steps=1500, falls=False)
        shown = np.array([line["loss"] for line in sampled_lines(training)])
        assert np.std(shown) == pytest.approx(0.354, rel=0.05)  # spec/batching.md 2.3: levels by their shares
        assert np.std(window_means(training)) == pytest.approx(0.08, rel=0.1)  # credit, windows of 4
        assert {round(float(loss), 1) for loss in shown} >= {0.5, 0.6, 1.0, 1.6}

    def test_is_told_from_the_samples_alone(self):
        for found in verdicts(lambda seed: foreign_run(sampled_lines(train(seed, steps=500)))):
            assert [verdict.kind for verdict in found] == ["sampling artefact", "mix"]
            assert "three bands" in found[0].headline
            assert "2 at a time every 10 s" in " ".join(found[0].evidence)

    def test_says_which_chart_to_trust(self):
        for seed in SEEDS:
            training = train(seed, steps=500)
            sample = foreign_run(sampled_lines(training)).micro
            windows = as_run(training, micro=False, per_bucket=False)
            found = judge_run(Run(**{**vars(windows), "micro": sample}))
            assert found[0].kind == "sampling artefact"
            assert "trust the window curve (train/loss)" in found[0].evidence[-1]

    def test_is_silent_where_the_windows_jump_as_much(self):
        training = train(0, steps=3000, window=1)
        sample = foreign_run(sampled_lines(training)).micro
        windows = as_run(training, micro=False, per_bucket=False)
        assert "sampling artefact" not in kinds(Run(**{**vars(windows), "micro": sample}))


class TestSeveralModes:
    def test_says_what_the_loss_alone_cannot_know(self):
        """The lowest of the three bands holds 7 % of the values: it is not always told from a tail."""
        headlines = []
        for found in verdicts(lambda seed: foreign_run(foreign_lines(shuffled(seed)))):
            assert [verdict.kind for verdict in found] == ["several modes"]
            assert "log seq_len" in " ".join(found[0].evidence)
            headlines.append(found[0].headline)
        assert sum("at least 3 levels" in headline for headline in headlines) >= 0.8 * len(headlines)

    def test_a_good_order_is_not_called_periodic(self):
        """Credit serves the buckets nearly in turn: the loss repeats, but not exactly."""
        assert all(kinds(foreign_run(foreign_lines(train(seed)))) == ("several modes",) for seed in SEEDS)

    def test_levels_that_the_buckets_do_not_explain(self):
        rng = np.random.default_rng(0)
        hidden = rng.integers(0, 2, 600)
        rows = [
            {
                "train/step": i + 1.0,
                "train/loss": 1 + h + rng.normal(0, 0.1),
                "bucket": float(rng.integers(6)),
            }
            for i, h in enumerate(hidden)
        ]
        verdict = of_kind(judge_run(run_of(rows)), "several modes")
        assert "the source of the samples" in verdict.evidence[-1]


def test_most_important_first():
    training = stalling(diverging(train(3), 400), 100, 140)
    found = kinds(as_run(training))
    assert found == ("instability", "checkpoint", "mix")
    assert list(found) == sorted(found, key=KINDS.index)


def test_a_verdict_of_no_known_kind_is_refused():
    with pytest.raises(ValueError, match="no verdict is called 'fine'; choose from instability, checkpoint"):
        Verdict("fine", "all is well")
