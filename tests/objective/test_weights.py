import math

import pytest
import torch

from dflash_lightning.objective.weights import default_gamma, dpace_weights, position_weights

TABLES = {  # (block size, gamma): weights of slots 1.. and their sum (spec/dflash.md 2.5)
    (16, 7.0): (
        "1 .866878 .751477 .651439 .564718 .489542 .424373 .367879 .318907 .276453 .239651 .207748 .180092 "
        ".156118 .135335",
        6.630611,
    ),
    (10, 5.0): ("1 .818731 .670320 .548812 .449329 .367879 .301194 .246597 .201897", 4.604759),
    (8, 4.0): ("1 .778801 .606531 .472367 .367879 .286505 .223130", 3.735212),
}


@pytest.mark.parametrize(("shape", "table"), TABLES.items())
def test_decay_of_the_paper(shape, table):
    weights = position_weights(*shape)
    expected = torch.tensor([float(w) for w in table[0].split()])
    torch.testing.assert_close(weights, expected, atol=1e-6, rtol=0)
    assert abs(float(weights.sum()) - table[1]) < 1e-5
    assert default_gamma(shape[0]) == shape[1]


@pytest.mark.parametrize(("block_size", "gamma"), [(2, 2.0), (4, 2.0), (7, 3.5), (12, 6.0), (32, 16.0)])
def test_default_gamma_of_other_blocks_is_half_the_block(block_size, gamma):
    assert default_gamma(block_size) == gamma


@pytest.mark.parametrize("gamma", [None, 0.0, -1.0])
def test_no_gamma_means_no_decay(gamma):
    assert position_weights(5, gamma).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("confidence", "mask", "weights"),
    [
        ([0.8, 0.5], [1, 1], [1.575, 0.675]),
        ([0.8, 0.5, 0.25], [1, 1, 1], [1.996875, 1.096875, 0.421875]),
        ([0.8, 0.5, 0.25], [1, 0, 1], [1.4625, 0, 0.5625]),  # slot 2 would weigh .5625: no break, no share
        ([0.9, 0.9, 0.1, 0.9], [1, 1, 1, 1], [2.820431, 1.870431, 0.967931, 0.471556]),
        ([1, 1, 1], [1, 1, 1], [3, 2, 1]),
    ],
)
def test_dpace(confidence, mask, weights):
    loss = -torch.tensor(confidence, dtype=torch.float64).log().requires_grad_()
    got = dpace_weights(loss, torch.tensor(mask).bool(), alpha=0.5)
    torch.testing.assert_close(got, torch.tensor(weights, dtype=torch.float64), atol=1e-6, rtol=0)
    assert not got.requires_grad


def test_alpha_1_ignores_confidence():
    loss = torch.tensor([0.1, 3.0, 9.0])
    assert dpace_weights(loss, torch.ones(3).bool(), alpha=1.0).tolist() == [3, 2, 1]


def test_weighted_means_of_the_worked_example():
    loss, weights = torch.tensor([1.0, 2.0, 3.0]), position_weights(4, 2.0)
    numerator, denominator = float((loss * weights).sum()), float(weights.sum())
    assert math.isclose(numerator, 3.316700, abs_tol=1e-6)
    assert math.isclose(denominator, 1.974410, abs_tol=1e-6)
    assert math.isclose(numerator / denominator, 1.679843, abs_tol=1e-6)
    kept = weights * torch.tensor([1, 0, 1])
    assert math.isclose(float((loss * kept).sum() / kept.sum()), 1.537883, abs_tol=1e-6)
    # A second rank with one token of loss 4: a ratio of sums, not a mean of two ratios (2.839921).
    assert math.isclose((numerator + 4) / (denominator + 1), 2.459883, abs_tol=1e-6)
