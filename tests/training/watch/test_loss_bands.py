"""A band is left by an excursion, not by noise, by learning, or by a step with little supervision."""

import json

import numpy as np
import pytest

from dflash_lightning.training.watch.loss_bands import Band, BandRule


def losses(seed, steps=400, *, start=3.0, end=2.0, deviation=0.1):
    """A loss that falls, with noise around it."""
    rng = np.random.default_rng(seed)
    trend = end + (start - end) * np.exp(-np.arange(steps) / (steps / 4))
    return trend + rng.normal(0, deviation, steps)


RULE = BandRule()


def told(values, weights=None, rule=RULE):
    """All excursions of a bucket whose steps are numbered from 1."""
    band = Band(0, rule)
    weights = np.ones(len(values)) if weights is None else weights
    pairs = zip(values.tolist(), weights.tolist(), strict=True)
    return [e for step, (x, w) in enumerate(pairs, start=1) if (e := band.add(x, w, step))]


@pytest.mark.parametrize("seed", range(10))
def test_noise_around_a_falling_loss_is_no_excursion(seed):
    assert told(losses(seed)) == []


@pytest.mark.parametrize("seed", range(10))
def test_steps_with_little_supervision_may_scatter_more(seed):
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.02, 1.0, 400)
    values = 2 + rng.normal(0, 0.1, 400) / np.sqrt(weights)
    assert told(values, weights, BandRule(patience=1)) == []


@pytest.mark.parametrize("seed", range(10))
def test_an_excursion_is_told_once_with_its_first_step_and_its_band(seed):
    values = losses(seed)
    values[299:309] += 1.5
    (excursion,) = told(values)
    assert (excursion.since, excursion.last, excursion.lasted) == (300, 301, 2)
    assert excursion.low < 2.0 < excursion.high < values[299]
    assert excursion.highest == max(values[299:301])


def test_one_step_alone_is_an_odd_batch():
    values = losses(0)
    values[299] += 5
    assert told(values) == []
    assert len(told(values, rule=BandRule(patience=1))) == 1


def test_a_divergence_is_told_while_it_grows():
    values = losses(0)
    values[300:] += 0.1 * np.arange(100)
    (excursion,) = told(values)
    assert 300 < excursion.since < 312


def test_a_lasting_level_is_learnt():
    values = losses(0, end=2.0)
    values[300:] += 1.0
    band = Band(0, RULE)
    outside = []
    for step, value in enumerate(values.tolist(), start=1):
        band.add(value, 1.0, step)
        outside.append(band.out)
    assert 5 < sum(outside) < 60
    assert not any(outside[:300])
    assert not any(outside[370:])


def test_falling_is_learning():
    values = losses(0)
    values[300:] -= 1.5
    assert told(values) == []


def test_a_bucket_of_equal_losses_has_a_band_all_the_same():
    values = np.full(100, 2.0)
    values[50:] = 2.05
    assert told(values) == []  # 5 x 1 % of 2
    values[50:] = 2.2
    assert len(told(values)) == 1


def test_nothing_is_said_before_the_band_is_trusted():
    values = np.array([2.0, 9.0, 2.0, 30.0, 2.0, 80.0])
    assert told(values, rule=BandRule(patience=1)) == []
    band = Band(0, BandRule(warm_up=3))
    limits = []
    for step, value in enumerate([2.0, 2.1, 2.0], start=1):
        limits.append(band.limits())
        band.add(value, 1.0, step)
    assert limits == [None, None, None]
    low, high = band.limits()
    assert low < 2.0 < high


def test_a_band_goes_on_where_it_was_saved():
    values = losses(3)
    values[200:220] += 1.5
    whole, half = Band(0, RULE), Band(0, RULE)
    for step, value in enumerate(values[:205].tolist(), start=1):
        whole.add(value, 1.0, step)
        half.add(value, 1.0, step)
    resumed = Band(0, RULE)
    resumed.load_state_dict(json.loads(json.dumps(half.state_dict())))  # plain values only
    for step, value in enumerate(values[205:].tolist(), start=206):
        assert resumed.add(value, 1.0, step) == whole.add(value, 1.0, step)
        assert resumed.excursion == whole.excursion
        assert resumed.limits(0.5) == whole.limits(0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0.0}, r"band.width must be positive, got 0\.0"),
        ({"half_life": -1.0}, "band.half_life must be positive, got -1"),
        ({"patience": 0}, "band.patience must be positive, got 0"),
        ({"warm_up": 1}, r"band.warm_up must be 2 to band.memory \(64\), got 1"),
        ({"warm_up": 65}, "got 65"),
        ({"least": -0.1}, r"band.least is a share of the mean, 0 or more, got -0\.1"),
    ],
)
def test_nonsense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        BandRule(**options)
