"""Window sums and normalisation on literal numbers (spec/dflash.md 6.16). With a drafter: tests/ranks."""

import math
from types import MappingProxyType

import pytest
import torch
from torch import nn

from dflash_lightning.training.forward import BlockOutcome
from dflash_lightning.training.normalize import clip_factor, normalize_gradients, raw_norm, window_scale
from dflash_lightning.training.window_sums import WindowSums

DECAY = [1.0, math.exp(-1 / 2), math.exp(-1)]  # gamma 2
THREE = ([1.0, 2.0, 3.0], DECAY)
ONE = ([4.0, 0.0, 0.0], [1.0, 0.0, 0.0])


def outcome(loss, weight, correct=(False, False, False)) -> BlockOutcome:
    """One row with one block of three slots."""
    as_block = [[[list(values)]] for values in (loss, weight, correct)]
    weights = torch.tensor(as_block[1])
    return BlockOutcome(torch.tensor(as_block[0]), weights, weights > 0, torch.tensor(as_block[2]))


def totals(*ranks, norm=1.0, votes=MappingProxyType({})):
    """Sums of a window; `ranks` holds the micro-batches of each."""
    vectors = []
    for micro_batches in ranks[:-1]:
        _finish(micro_batches, norm, votes, lambda v: vectors.append(v) or v)
    return _finish(ranks[-1], norm, votes, lambda v: v + sum(vectors))


def _finish(micro_batches, norm, votes, reduce):
    sums = WindowSums()
    for micro_batch in micro_batches:
        sums.add(outcome(*micro_batch))
    return sums.finish(torch.tensor(norm), votes, reduce)


@pytest.mark.parametrize(
    ("ranks", "loss"),
    [
        ([[THREE]], 1.679843),  # 6.13: 3.316700 / 1.974410
        ([[THREE], [ONE]], 2.459883),  # 6.16; a mean of the ranks' means would be 2.839921
        ([[THREE, ONE]], 2.459883),  # two micro-batches instead of two ranks
        ([[THREE, ONE], [ONE, THREE]], 2.459883),
        ([[THREE], [([9.0, 9.0, 9.0], [0.0, 0.0, 0.0])]], 1.679843),  # a rank with nothing supervised
    ],
)
def test_the_loss_of_a_window_is_one_ratio_over_ranks_and_micro_batches(ranks, loss):
    assert totals(*ranks).ratios()["train/loss"] == pytest.approx(loss, abs=5e-7)


@pytest.mark.parametrize(
    ("correct", "tau", "accuracy"),
    [
        ([(True, True, True)], 4.0, 1.0),
        ([(True, False, True)], 2.0, 2 / 3),  # what comes behind the first miss is thrown away
        ([(False, True, True), (True, True, True)], 2.5, 5 / 6),  # (1 + 4) / 2 blocks
    ],
)
def test_tau_counts_the_streak_and_the_targets_own_token(correct, tau, accuracy):
    ratios = totals([(*THREE, flags) for flags in correct]).ratios()
    assert ratios["train/tau"] == pytest.approx(tau)
    assert ratios["train/accuracy"] == pytest.approx(accuracy)


def test_a_window_without_supervision_has_no_ratios():
    ratios = totals([([0.0] * 3, [0.0] * 3)]).ratios()
    assert all(math.isnan(value) for value in ratios.values())


def test_one_collective_carries_what_ranks_must_agree_on():
    calls = []
    sums = WindowSums()
    sums.add(outcome(*THREE))
    both = sums.finish(torch.tensor(math.inf), {"sigterm": True}, lambda v: calls.append(v) or v + v)
    assert len(calls) == 1
    assert (both.non_finite, both.sigterm, both.sigint) == (2, 2, 0)


def test_clearing_forgets_the_window():
    sums = WindowSums()
    sums.add(outcome(*ONE))
    sums.clear()
    sums.add(outcome(*THREE))
    assert len(sums.losses) == 1
    assert sums.finish(torch.tensor(1.0), {}, lambda v: v).loss == pytest.approx(3.3167, abs=1e-4)


def weights(*gradients):
    """Parameters that already have a gradient; None has none."""
    parameters = [nn.Parameter(torch.zeros(2)) for _ in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = None if gradient is None else torch.tensor(gradient)
    return parameters


def normalized(parameters, *, weight=2.0, non_finite=False, max_norm=None, world=2, accumulate=3):
    return normalize_gradients(
        parameters,
        norm=raw_norm(parameters).item(),
        non_finite=non_finite,
        weight=weight,
        world=world,
        accumulate=accumulate,
        max_norm=max_norm,
        step=7,
    )


@pytest.mark.parametrize(
    ("weight", "world", "accumulate", "scale"),
    [(1.0, 1, 1, 1.0), (8.0, 2, 4, 1.0), (2.0, 2, 4, 4.0), (0.0, 2, 4, 0.0)],
)
def test_the_scale_undoes_both_averages_and_divides_once(weight, world, accumulate, scale):
    assert window_scale(weight=weight, world=world, accumulate=accumulate) == scale


@pytest.mark.parametrize(
    ("norm", "limit", "factor"),
    [(4.0, 1.0, 0.25), (1.0, 1.0, 1.0), (0.5, 1.0, 1.0), (9.0, None, 1.0), (9.0, 0.0, 1.0), (0.0, 1.0, 1.0)],
)
def test_clipping_shrinks_to_the_limit_and_never_stretches(norm, limit, factor):
    assert clip_factor(norm, limit) == factor


def test_normalising_is_one_multiplication():
    parameters = weights([3.0, 0.0], [0.0, 4.0], None)
    record = normalized(parameters, max_norm=1.0)
    assert (record.norm, record.scale, record.weight, record.step) == (15.0, 3.0, 2.0, 7)
    assert record.clip_factor == pytest.approx(1 / 15)
    assert not record.skipped
    assert torch.allclose(parameters[0].grad, torch.tensor([0.6, 0.0]))
    assert torch.allclose(parameters[1].grad, torch.tensor([0.0, 0.8]))
    assert parameters[2].grad is None
    assert raw_norm(parameters).item() == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [{"non_finite": True}, {"weight": 0.0}])
def test_a_skipped_step_leaves_no_gradient_to_step_with(bad):
    parameters = weights([3.0, 4.0])
    record = normalized(parameters, **bad)
    assert record.skipped
    assert math.isnan(record.clip_factor)
    assert parameters[0].grad is None


def test_a_rank_whose_own_norm_is_fine_skips_with_the_others():
    """The verdict comes from the sum over ranks, never from the rank's own norm."""
    assert normalized(weights([1.0, 1.0]), non_finite=True).skipped


def test_without_gradients_the_norm_is_zero():
    assert raw_norm(weights(None)).item() == 0.0


def test_without_gradients_the_optimizer_keeps_weights_and_its_own_count():
    (parameter,) = weights([1.0, 1.0])
    optimizer = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.1, fused=True)
    optimizer.step()
    before, moments = (
        parameter.detach().clone(),
        {k: v.clone() for k, v in optimizer.state[parameter].items()},
    )
    normalized([parameter], non_finite=True)
    optimizer.step()
    assert torch.equal(parameter, before)
    assert all(torch.equal(optimizer.state[parameter][k], v) for k, v in moments.items())
    assert moments["step"] == 1
