import pytest
import torch
from jsonargparse import ArgumentParser

from dflash_lightning.objective import CrossEntropy, Distillation, DPace, Objective
from dflash_lightning.objective.weights import dpace_weights, position_weights

SUPERVISED = torch.tensor([[[True, True, True], [True, False, True], [False, False, False]]])
LOSS = torch.rand(1, 3, 3, generator=torch.Generator().manual_seed(0)) + 0.1


@pytest.mark.parametrize("objective", [CrossEntropy(), Distillation(), DPace()])
def test_weights_are_fp32_constants_and_0_where_not_supervised(objective):
    weights = objective.weights(LOSS.double().requires_grad_(), SUPERVISED)
    assert weights.dtype == torch.float32
    assert not weights.requires_grad
    assert torch.equal(weights > 0, SUPERVISED)


@pytest.mark.parametrize(("gamma", "resolved"), [("auto", 2.0), (10.0, 10.0), (None, None), (0.0, None)])
@pytest.mark.parametrize("kind", [CrossEntropy, Distillation])
def test_gamma(kind, gamma, resolved):
    expected = position_weights(4, resolved) * SUPERVISED
    assert torch.equal(kind(gamma=gamma).weights(LOSS, SUPERVISED), expected)


def test_dpace_takes_its_weights_from_the_losses():
    assert torch.equal(DPace(alpha=0.3).weights(LOSS, SUPERVISED), dpace_weights(LOSS, SUPERVISED, alpha=0.3))


def test_only_distillation_asks_for_the_target():
    states = torch.zeros(2, 8)
    for objective in (CrossEntropy(), DPace()):
        assert not objective.needs_target_logits
        assert objective.teacher(states) is None
    teacher = Distillation(mix=0.25, temperature=2.0).teacher(states)
    assert Distillation().needs_target_logits
    assert (teacher.mix, teacher.temperature) == (0.25, 2.0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DPace(alpha=1.5), "DPace.alpha smooths between 0 and 1, got 1.5"),
        (lambda: Distillation(mix=-0.1), "Distillation.mix is a share between 0 and 1, got -0.1"),
        (lambda: Distillation(temperature=0.0), "Distillation.temperature must be above 0, got 0.0"),
    ],
)
def test_nonsense_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("arguments", "objective"),
    [
        (["--objective=CrossEntropy"], CrossEntropy()),
        (["--objective=CrossEntropy", "--objective.gamma=10"], CrossEntropy(gamma=10.0)),
        (["--objective=CrossEntropy", "--objective.gamma=null"], CrossEntropy(gamma=None)),
        (["--objective=DPace", "--objective.alpha=0.25"], DPace(alpha=0.25)),
        (["--objective=Distillation", "--objective.mix=1"], Distillation(mix=1.0)),
    ],
)
def test_objectives_are_chosen_by_short_class_name(arguments, objective):
    parser = ArgumentParser()
    parser.add_argument("--objective", type=Objective)
    assert parser.instantiate(parser.parse_args(arguments)).objective == objective
