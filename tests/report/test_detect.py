"""The tools behind the verdicts, each against what is known."""

import numpy as np
import pytest

from dflash_lightning.report.detect.bands import bands, tell_bands
from dflash_lightning.report.detect.checkpoint import regular_distance
from dflash_lightning.report.detect.curve import block_edges, movement, trend
from dflash_lightning.report.detect.jumps import largest_rise, spikes
from dflash_lightning.report.detect.length_groups import length_groups
from dflash_lightning.report.detect.modes import count_modes
from dflash_lightning.report.detect.period import find_period
from dflash_lightning.report.detect.sampling import sampled


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("count", [8, 40, 41, 600, 5000])
def test_blocks_cover_every_value_once(count):
    edges = block_edges(count)
    assert edges[0] == 0
    assert edges[-1] == count
    assert (np.diff(edges) >= 4).all()


def test_a_trend_only_falls(rng):
    values = np.linspace(3, 1, 500) + rng.normal(0, 0.3, 500)
    assert (np.diff(trend(values)) <= 1e-12).all()


def test_a_rise_stays_in_the_movement():
    values = np.where(np.arange(400) < 300, 1.0, 2.0)
    assert np.ptp(movement(values)) == pytest.approx(1.0)


@pytest.mark.parametrize("at", [100, 200, 350])
def test_a_rise_is_found_at_its_place(rng, at):
    found = largest_rise(rng.normal(0, 0.1, 400) + (np.arange(400) >= at))
    assert found is not None
    assert abs(found.at - at) <= 1
    assert found.rise == pytest.approx(1.0, abs=0.1)
    assert found.stays


def test_spikes_are_found_and_noise_is_not(rng):
    noise = rng.normal(0, 0.1, 500)
    assert len(spikes(noise)) == 0
    noise[[100, 321]] += 2
    assert spikes(noise).tolist() == [100, 321]


@pytest.mark.parametrize("length", [5, 12.5, 60])
def test_a_period_between_whole_values(rng, length):
    found = find_period(np.sin(2 * np.pi * np.arange(600) / length) + rng.normal(0, 0.3, 600))
    assert found is not None
    assert found.length == pytest.approx(length, rel=0.02)


def test_noise_has_no_period(rng):
    assert all(find_period(rng.normal(0, 1, 300)) is None for _ in range(50))


@pytest.mark.parametrize("modes", [1, 2, 3])
def test_humps_are_counted(rng, modes):
    assert count_modes(rng.integers(0, modes, 600) + rng.normal(0, 0.1, 600)) == modes


def test_lengths_are_cut_where_the_loss_changes(rng):
    length = rng.integers(1, 1000, 500).astype(float)
    group = length_groups(length, np.where(length > 400, 1.0, 0.0) + rng.normal(0, 0.1, 500))
    assert set(group.tolist()) == {0, 1}
    assert length[group == 0].max() <= 400 < length[group == 1].min()


def test_lengths_that_do_not_matter_are_not_cut(rng):
    assert all(length_groups(rng.random(300), rng.normal(0, 1, 300)).max() == 0 for _ in range(20))


def test_bands_are_named():
    levels = np.array([0.55, 1.0, 1.02, 0.98, 1.6])
    names = [f"bucket {i}" for i in range(5)]
    assert bands(levels, 0.05) == [[0], [1, 2, 3], [4]]
    assert (
        tell_bands(levels, 0.05, names) == "three bands: 0.55 (bucket 0), 1.00 (buckets 1-3), 1.60 (bucket 4)"
    )


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([100, 200, 300], 100),
        ([100, 200, 400, 500, 600], 100),
        ([100, 130, 300, 390], None),
        ([100, 200], None),
    ],
)
def test_regular_distances(steps, expected):
    assert regular_distance(np.array(steps, float)) == expected


def test_two_batches_at_a_time_every_ten_seconds():
    assert sampled(np.arange(25.0)).tolist() == [0, 1, 10, 11, 20, 21]
