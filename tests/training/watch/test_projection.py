"""The projection keeps inner products, is linear, and is the same on every machine and in every run."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.training.watch.projection import WIDTH, Projection, cosine

SMALL = 4096
SIZES = [(96, 256), (100,), (256, 96), (7,)]


def gradients(kind, seed):
    """Gradients with the shapes of SIZES, and with what makes a projection fail."""
    draw = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(size, generator=draw) for size in SIZES]
    if kind == "one column":  # outlier channels: the same place of every row
        tensors[0][:, 17] *= 1000
        tensors[2][:, 17] *= 1000
    if kind == "one entry":
        tensors[0][3, 5] = 1e4
    if kind == "low rank":
        tensors[0] = 50 * torch.outer(torch.randn(96, generator=draw), torch.randn(256, generator=draw))
    if kind == "constant":
        tensors = [torch.ones(size) + 0.1 * tensor for size, tensor in zip(SIZES, tensors, strict=True)]
    return tensors


def flat(tensors):
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def numbers(tensors):
    return [tensor.numel() for tensor in tensors]


@pytest.mark.parametrize("kind", ["noise", "one column", "one entry", "low rank", "constant"])
@pytest.mark.parametrize("mixed", [0.0, 0.3, 3.0, -1.0])
def test_a_cosine_is_kept_up_to_its_error_bound(kind, mixed):
    first, other = gradients(kind, 1), gradients(kind, 2)
    second = [mixed * one + two for one, two in zip(first, other, strict=True)]
    project = Projection(numbers(first), width=SMALL)
    exact = cosine(flat(first), flat(second))
    assert cosine(project(first), project(second)) == pytest.approx(exact, abs=3 * math.sqrt(2 / SMALL))


def test_over_many_seeds_the_inner_product_is_unbiased_and_as_exact_as_said():
    first, second = gradients("one column", 1), gradients("one column", 2)
    product = float(flat(first).double() @ flat(second).double())
    length = float(flat(first).norm() * flat(second).norm())
    errors = []
    for seed in range(64):
        project = Projection(numbers(first), width=SMALL, seed=seed)
        errors.append((float(project(first).double() @ project(second).double()) - product) / length)
    spread = math.sqrt(2 / SMALL)
    assert abs(sum(errors) / 64) < 3 * spread / 8
    assert math.sqrt(sum(error**2 for error in errors) / 64) < 1.2 * spread


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 99), factor=st.floats(-8, 8), width=st.sampled_from([1000, 4096]))
def test_the_projection_is_linear(seed, factor, width):
    first, second = gradients("noise", seed), gradients("noise", seed + 1)
    project = Projection(numbers(first), width=width)
    together = project([one + factor * two for one, two in zip(first, second, strict=True)])
    assert torch.allclose(together, project(first) + factor * project(second), rtol=1e-3, atol=1e-2)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_entry_lands_on_one_place_with_one_sign(data):
    size, width = data.draw(st.integers(1, 64)), data.draw(st.integers(1, 16))
    place = data.draw(st.integers(0, size - 1))
    sketch = Projection([size, 3], width=width)([torch.eye(size)[place], None])
    assert sorted(sketch.abs().tolist()) == [0.0] * (width - 1) + [1.0]


def test_the_draw_is_this_one():
    """Checkpoints hold sketches: another draw would compare apples with pears."""
    sketch = Projection([6, 2], width=4)([torch.arange(1.0, 7.0), torch.tensor([10.0, 20.0])])
    assert sketch.tolist() == [-2.0, 8.0, -30.0, -1.0]


def test_a_missing_gradient_is_a_zero_and_moves_nothing():
    tensors = gradients("noise", 0)
    project = Projection(numbers(tensors), width=SMALL)
    without = project([tensors[0], None, *tensors[2:]])
    assert torch.equal(without, project([tensors[0], torch.zeros(SIZES[1]), *tensors[2:]]))
    assert torch.equal(project([None] * 4), torch.zeros(SMALL))


def test_rounded_gradients_are_added_up_in_fp32():
    tensors = [tensor.bfloat16() for tensor in gradients("noise", 0)]
    project = Projection(numbers(tensors), width=SMALL)
    assert torch.equal(project(tensors), project([tensor.float() for tensor in tensors]))


def test_memory_is_a_few_megabytes_for_a_drafter_of_any_size():
    tenth, billion = Projection([100_000_000]), Projection([4096 * 12288] * 15 + [4096 * 4096] * 20)
    assert billion.nbytes < 3e6
    assert billion.nbytes - tenth.nbytes < 2e5
    assert WIDTH * 4 < 1.1e6  # a sketch; three are alive at most


def test_the_cosine_of_nothing_is_no_number():
    assert math.isnan(cosine(torch.zeros(3), torch.ones(3)))
