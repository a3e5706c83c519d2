"""Cosine and noise scale of pairs of gradients, against known noise and against recounts."""

import math

import pytest
import torch

from dflash_lightning.training.watch.grad_direction import (
    DirectionTotals,
    MicroSketches,
    Pair,
    Snapshot,
    compare,
)


def snapshot(vector, *, step=1, scale=1.0, weight=1.0):
    return Snapshot(step=step, sketch=torch.tensor(vector), scale=scale, weight=weight)


@pytest.mark.parametrize(
    ("first", "second", "cosine"),
    [
        ([1.0, 0.0], [3.0, 0.0], 1.0),
        ([1.0, 0.0], [-2.0, 0.0], -1.0),  # whiplash
        ([1.0, 0.0], [0.0, 5.0], 0.0),
        ([3.0, 4.0], [4.0, 3.0], 0.96),
    ],
)
def test_a_pair(first, second, cosine):
    pair = compare(snapshot(first, scale=0.5, weight=2.0), snapshot(second, scale=2.0, weight=6.0))
    assert pair.cosine == pytest.approx(cosine)
    one, two = 0.5 * torch.tensor(first), 2.0 * torch.tensor(second)
    assert pair.signal == pytest.approx(float(one @ two))
    assert pair.noise == pytest.approx(float((one - two).square().sum()) / (1 / 2 + 1 / 6))


def test_the_noise_scale_is_that_of_the_noise_put_in():
    """True gradient of length 2, noise of variance 0.5 in each of 1000 places per unit of weight: 500 / 4."""
    draw = torch.Generator().manual_seed(0)
    signal = torch.zeros(1000)
    signal[0] = 2.0
    totals = DirectionTotals(running_pairs=1000)
    for number in range(400):
        weights = (300.0 + number % 7, 500.0)
        noise = [torch.randn(1000, generator=draw) * math.sqrt(0.5 / weight) for weight in weights]
        one, two = (
            Snapshot(step=1, sketch=signal + n, scale=1.0, weight=w)
            for n, w in zip(noise, weights, strict=True)
        )
        totals.add(compare(one, two))
    assert totals.take()["direction/noise_scale"] == pytest.approx(125, rel=0.03)


def test_means_cover_the_pairs_since_the_last_take_and_the_noise_scale_goes_on():
    totals = DirectionTotals(running_pairs=2)
    for cosine, signal, noise in [(0.5, 4.0, 8.0), (-0.25, 2.0, 8.0)]:
        totals.add(Pair(cosine=cosine, signal=signal, noise=noise))
    first = totals.take(torch.tensor([4.0, 1.0]))
    assert first == {
        "direction/cosine": 0.125,
        "direction/cosine_min": -0.25,
        "direction/noise_scale": pytest.approx((8 / 4 + 8 / 2) / (4 / 4 + 2 / 2)),
        "direction/micro_cosine": 0.25,
    }
    nothing = totals.take(torch.zeros(2))  # no pair, no value; but the noise scale is a running one
    assert nothing.pop("direction/noise_scale") == first["direction/noise_scale"]
    assert all(math.isnan(value) for value in nothing.values())
    totals.add(Pair(cosine=1.0, signal=1.0, noise=0.0))
    assert totals.take()["direction/noise_scale"] == pytest.approx(3 / (1 + 0.5))


def test_a_signal_below_zero_has_no_noise_scale_and_a_zero_gradient_no_direction():
    totals = DirectionTotals(running_pairs=2)
    totals.add(Pair(cosine=math.nan, signal=0.0, noise=0.0))
    assert all(math.isnan(value) for value in totals.take().values())
    totals.add(Pair(cosine=-1.0, signal=-1.0, noise=4.0))
    assert math.isnan(totals.take()["direction/noise_scale"])


def test_micro_batches_are_what_the_sum_grew_by():
    parts = [torch.tensor(v) for v in ([1.0, 0.0], [1.0, 1.0], [-1.0, 0.0], [-1.0, 0.0])]
    sketches = MicroSketches()
    for number in range(1, 5):
        sketches.add(torch.stack(parts[:number]).sum(0))
    assert sketches.cosines == pytest.approx([0.5**0.5, -(0.5**0.5), 1.0])
    totals = DirectionTotals(running_pairs=2)
    totals.add_micro([*sketches.cosines, math.nan])
    assert totals.micro.tolist() == pytest.approx([3, 1.0])


def test_saved_totals_go_on():
    whole = DirectionTotals(running_pairs=3)
    whole.add(Pair(cosine=0.5, signal=4.0, noise=8.0))
    again = DirectionTotals(running_pairs=3)
    again.load_state_dict(whole.state_dict())
    assert again == whole
