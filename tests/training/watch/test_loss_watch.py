"""Values, alarms and words about the loss by bucket, from made-up sums."""

import json
import math

import numpy as np
import pytest

from dflash_lightning.training.watch import loss_watch
from dflash_lightning.training.watch.loss_bands import BandRule, Excursion
from dflash_lightning.training.watch.loss_watch import LossWatch
from dflash_lightning.training.watch.loss_words import epoch_words
from dflash_lightning.training.watch.mix_split import RawMovement
from tests.training.watch.bucket_sums import step_of

EDGES = (64, 128, 256)
RULE = BandRule()


def watched(steps):
    """(watch, alarms, news) after these steps of micro-batches, numbered from 1."""
    watch, alarms, news = LossWatch(EDGES, RULE), [], []
    for number, micro_batches in enumerate(steps, start=1):
        more = watch.add(step_of(micro_batches, 3), number)
        alarms += more[0]
        news += more[1]
    return watch, alarms, news


def test_values_are_ratios_of_sums_and_a_bucket_without_tokens_has_none():
    watch, *_ = watched([[(0, 1.0, 1.0), (2, 4.0, 2.0)], [(0, 2.0, 3.0)]])
    values = watch.take(2)
    assert values.pop("loss/mix_pct") >= 0
    assert values == pytest.approx(
        {
            "loss/bucket_0": (1 * 1 + 2 * 3) / 4,
            "loss/bucket_1": math.nan,
            "loss/bucket_2": 4.0,
            "loss/spread": 4 - 7 / 4,
            "acceptance/bucket_0": 1.5,
            "acceptance/bucket_1": math.nan,
            "acceptance/bucket_2": 1.5,
            "loss/out_of_band": 0.0,
        },
        nan_ok=True,
    )
    nothing = watch.take(3)  # all steps since then were skipped
    assert nothing.keys() == {*values, "loss/mix_pct"}  # what is missing would be shown as it was before
    assert {name for name, value in nothing.items() if not math.isnan(value)} == {"loss/out_of_band"}


def test_one_bucket_has_no_spread():
    watch, *_ = watched([[(1, 2.0, 1.0)]])
    values = watch.take(1)
    assert values["loss/bucket_1"] == 2.0
    assert math.isnan(values["loss/spread"])


def noisy(steps, *, deviation=0.05, seed=0):
    rng = np.random.default_rng(seed)
    return [[(t % 3, 1.0 + t % 3 + rng.normal(0, deviation), 1.0)] for t in range(steps)]


def test_an_excursion_is_warned_of_once_and_its_end_is_told():
    steps = noisy(300)
    for t in (200, 203, 206):  # bucket 2, each third step
        steps[t] = [(2, 6.0, 1.0)]
    watch, alarms, news = watched(steps[:208])
    (text,) = alarms
    assert text.startswith("loss of bucket 2 (129 to 256 tokens) is 6 at step 204, above its band (")
    assert text.endswith("for 2 of its steps in a row, since step 201")
    assert watch.take(208)["loss/out_of_band"] == 1.0
    watch, alarms, news = watched(steps)
    assert len(alarms) == 1
    (text,) = news
    assert "bucket 2 (129 to 256 tokens) is back in its band at step 210: it was above for 3 of its" in text
    assert "201 to 207, at most 6" in text


def test_out_of_band_covers_all_steps_since_the_last_log():
    steps = noisy(300)
    steps[200], steps[203] = [(2, 6.0, 1.0)], [(2, 6.0, 1.0)]
    watch, *_ = watched(steps)
    assert watch.take(300)["loss/out_of_band"] == 1.0  # long over
    assert watch.take(301)["loss/out_of_band"] == 0.0


def test_an_epoch_of_mix_is_called_mix():
    watch, *_ = watched(noisy(120))
    words, _ = watch.end_epoch()
    assert words.startswith(
        "mix, no instability: of the variance of the raw loss curve (standard deviation 0.8"
    )
    assert "100 % is which bucket a micro-batch came from. No bucket left its band." in words
    assert watch.end_epoch()[0].startswith("no bucket left its band. There were too few micro-batches")


def test_an_epoch_with_an_excursion_is_called_instability():
    steps = noisy(300)
    for t in range(200, 221, 3):
        steps[t] = [(2, 6.0, 1.0)]
    words, _ = watched(steps)[0].end_epoch()
    assert words.startswith("instability: bucket 2 (129 to 256 tokens) was above its band for")
    assert "of its steps, 201 to" in words


@pytest.mark.parametrize(
    ("share", "excursions", "skipped", "words"),
    [
        (0.5, 0, 0, "mix, no instability: of the variance"),
        (
            0.49,
            0,
            0,
            "neither mix nor instability, but noise and learning within the buckets: of the variance",
        ),
        (
            0.9,
            1,
            0,
            "instability: bucket 0 (1 to 64 tokens) was above its band for 3 of its steps, 7 to 9, at ",
        ),
        (0.9, 2, 0, r"at most 5 (1 shorter excursions besides). Of the variance"),
        (0.9, 0, 4, "instability: 4 steps had no finite gradient and were skipped. Of the variance"),
        (None, 0, 0, "no bucket left its band. There were too few"),
        (None, 1, 1, "; 1 steps had no finite gradient and were skipped. There were too few"),
    ],
)
def test_the_words_at_the_end_of_an_epoch(share, excursions, skipped, words):
    movement = None if share is None else RawMovement(share=share, deviation=0.5)
    one = Excursion(bucket=0, since=7, last=9, lasted=3, highest=5.0, low=1.0, high=2.0)
    assert words in epoch_words(movement, [one] * excursions, skipped, EDGES)


@pytest.mark.parametrize("share", [0.9, 0.1, None])
def test_a_bucket_without_a_band_is_not_said_to_be_in_it(share):
    movement = None if share is None else RawMovement(share=share, deviation=0.5)
    words = epoch_words(movement, [], 0, EDGES, without_band=2)
    assert f"2 of {len(EDGES)} buckets had too few steps for a band" in words
    assert "instability" not in words


def test_a_watch_knows_which_buckets_have_no_band_yet():
    words, _ = watched([[(0, 1.0, 1.0)]] * 20)[0].end_epoch()
    assert words.startswith(f"{len(EDGES) - 1} of {len(EDGES)} buckets had too few steps for a band")


def test_rows_of_the_picture_hold_the_band_where_there_is_one():
    watch = LossWatch(EDGES, RULE)
    for number, micro_batches in enumerate(noisy(60), start=1):
        watch.add(step_of(micro_batches, 3), number)
        if number % 10 == 0:
            watch.take(number)
    rows = watch.end_epoch()[1]
    assert [row[:2] for row in rows] == [(10 * i, b) for i in range(1, 7) for b in range(3)]
    assert math.isnan(rows[0][3])
    assert rows[-1][3] < rows[-1][2] < rows[-1][4]


def test_a_long_epoch_keeps_a_bounded_number_of_rows(monkeypatch):
    monkeypatch.setattr(loss_watch, "MOST_LOGS", 8)
    watch = LossWatch(EDGES, RULE)
    for step in range(1, 101):
        watch.add(step_of([(0, 1.0, 1.0)], 3), step)
        watch.take(step)
    steps = [row[0] for row in watch.end_epoch()[1]]
    assert 4 <= len(steps) <= 8
    assert len(set(np.diff(steps))) == 1  # evenly spaced


def test_a_watch_goes_on_where_it_was_saved():
    steps = noisy(300)
    for t in range(150, 171, 3):
        steps[t] = [(t % 3, 6.0, 1.0)]
    whole, half = LossWatch(EDGES, RULE), LossWatch(EDGES, RULE)
    resumed = LossWatch(EDGES, RULE)
    for number, micro_batches in enumerate(steps, start=1):
        sums = step_of(micro_batches, 3)
        if number == 156:
            saved = json.loads(json.dumps(half.state_dict()))
            resumed.load_state_dict(saved)
        told = whole.add(sums, number)
        assert (half if number < 156 else resumed).add(sums, number) == told
        if number % 7 == 0:
            assert (half if number < 156 else resumed).take(number) == whole.take(number)
    (words, rows), (our_words, our_rows) = whole.end_epoch(), resumed.end_epoch()
    assert our_words == words
    assert np.array_equal(np.array(our_rows), np.array(rows), equal_nan=True)
