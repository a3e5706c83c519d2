"""What a verdict must not claim: from noise, from too few values, from a part of the run."""

import numpy as np
import pytest

from dflash_lightning.report.detect.bands import tell_bands
from dflash_lightning.report.run import MicroLog, Run
from dflash_lightning.report.verdict import MIN_VALUES, judge_run
from tests.report.judged import SEEDS, STEPS, kinds, of_kind
from tests.report.synthetic import (
    as_run,
    diverging,
    foreign_lines,
    foreign_run,
    run_of,
    smooth,
    stalling,
    train,
)


class TestSteady:
    @pytest.mark.parametrize("window", [1, 4, 32])
    def test_noise_on_a_falling_curve(self, window):
        found = [kinds(as_run(smooth(seed, steps=300, window=window), micro=False)) for seed in SEEDS]
        assert found.count(("steady",)) >= 19

    @pytest.mark.slow
    @pytest.mark.parametrize("count", [MIN_VALUES, 150, 600])
    @pytest.mark.parametrize("noise", ["normal", "wandering", "heavy"])
    def test_false_alarms_are_rare(self, noise, count):
        """At most 2 of 50, also for noise that wanders (correlation 0.9) or has heavy tails."""
        alarms = sum(kinds(noisy_run(seed, noise, count)) != ("steady",) for seed in range(50))
        assert alarms <= 2

    def test_says_how_much_the_curve_moves(self):
        (verdict,) = judge_run(as_run(smooth(0), micro=False))
        assert verdict.headline == "steady: nothing stands out in 600 values, steps 1 to 600"
        assert "around its trend the loss moves by 0.02" in verdict.evidence[0]


def noisy_run(seed, noise, count):
    rng = np.random.default_rng(seed)
    values = {"normal": rng.normal, "heavy": lambda *a: rng.standard_t(4, count)}.get(noise, rng.normal)(
        0, 1, count
    )
    if noise == "wandering":
        for i in range(1, count):
            values[i] = 0.9 * values[i - 1] + np.sqrt(1 - 0.81) * values[i]
    places = np.arange(count)
    falls = [
        1 + 2 * np.exp(-places / (count / 12)),
        3 * (places + 10.0) ** -0.25,
        np.full(count, 1.2),
        2 - places / count,
    ]
    loss = falls[seed % 4] * (1 + 0.05 * values)
    return run_of([{"train/step": i + 1.0, "train/loss": value} for i, value in enumerate(loss)])


class TestUnknown:
    def test_says_how_many_values_are_needed(self):
        (verdict,) = judge_run(as_run(train(0, steps=300), micro=False, log_every=10))
        assert verdict.kind == "unknown"
        assert verdict.headline == "unknown: 30 values of the loss are too few, 40 are needed"

    def test_a_loss_that_is_no_number_is_an_instability_in_the_shortest_log(self):
        rows = [
            {"train/step": float(step), "train/loss": np.nan if step > 7 else 2.0} for step in range(1, 11)
        ]
        found = judge_run(run_of(rows))
        assert [verdict.kind for verdict in found] == ["instability", "unknown"]
        assert found[0].steps == [8, 9, 10]
        assert found[1].headline == "unknown: 7 values of the loss are too few, 40 are needed"


class TestPartOfTheRun:
    """Single batches that were logged for a while do not stand for the rest."""

    @pytest.mark.parametrize("kept", [slice(0, 100), slice(300, 400), slice(0, 396)])
    def test_a_divergence_outside_of_the_micro_log_is_found(self, kept):
        training = diverging(train(0, steps=STEPS), 250)
        whole = as_run(training)
        inside = np.isin(whole.micro.step, training.steps[kept])
        micro = MicroLog(**{name: values[inside] for name, values in vars(whole.micro).items()})
        verdict = of_kind(judge_run(Run(**{**vars(whole), "micro": micro})), "instability")
        assert abs(verdict.steps[0] - 250) <= 2

    def test_a_slow_checkpoint_outside_of_the_micro_log_is_found(self):
        whole = as_run(stalling(smooth(0), 150, 140))
        values = {name: column for name, column in whole.values.items() if not name.startswith("t")}
        times = 1e9 + np.cumsum(whole.values["throughput/step_s"])
        values["train/loss"] = whole.loss
        inside = whole.micro.step <= 500
        micro = {name: column[inside][:400] for name, column in vars(whole.micro).items()}
        run = Run(**{**vars(whole), "values": values, "times": times, "micro": MicroLog(**micro)})
        assert of_kind(judge_run(run), "checkpoint").steps == [150, 300, 450, 600]


class TestHonesty:
    def test_a_steady_log_of_losses_alone_says_what_it_cannot_tell(self):
        (verdict,) = judge_run(foreign_run(foreign_lines(smooth(0))))
        assert verdict.kind == "steady"
        (line,) = [line for line in verdict.evidence if line.startswith("what this log cannot tell")]
        for missing in ("no times", "no gradient norm", "no loss to a length"):
            assert missing in line

    def test_a_full_log_has_nothing_to_hold_back(self):
        (verdict,) = judge_run(as_run(smooth(0)))
        assert verdict.kind == "steady"
        assert "cannot tell" not in " ".join(verdict.evidence)

    def test_levels_too_close_for_bands_are_told_by_their_range(self):
        levels = np.linspace(1.0, 1.5, 6)
        assert tell_bands(levels, 0.1, [f"bucket {i}" for i in range(6)]) == (
            "levels from 1.00 (bucket 0) to 1.50 (bucket 5)"
        )
