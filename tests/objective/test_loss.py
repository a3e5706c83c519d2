import math

import pytest
import torch
from torch.nn import functional as F

from dflash_lightning.objective import DPace, Teacher, head_loss
from dflash_lightning.objective.weights import position_weights
from tests.objective.reference import draw, plain_loss

P, H, V = 7, 5, 11
LABELS = torch.tensor([0, 3, 10, 3, 7, 1, 5])
WEIGHTS = torch.tensor([1.0, 0.5, 0.0, 0.25, 1.0, 0.75, 0.1], dtype=torch.float64)


def inputs():
    return draw(P, H, seed=0).requires_grad_(), draw(V, H, seed=1)


class TestChunks:
    @pytest.mark.parametrize("chunk", [1, 3, P, 100])
    def test_any_chunk_size_equals_all_logits_at_once(self, chunk):
        hidden, head = inputs()
        plain = plain_loss(hidden, head, LABELS)
        chunked = head_loss(hidden, head, LABELS, chunk=chunk)
        torch.testing.assert_close(chunked.loss, plain.loss, atol=1e-12, rtol=0)
        assert torch.equal(chunked.correct, plain.correct)
        expected, got = (
            torch.autograd.grad((WEIGHTS * losses.loss).sum(), hidden)[0] for losses in (plain, chunked)
        )
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)
        assert torch.equal(got[2], torch.zeros(H, dtype=torch.float64))  # weight 0

    @pytest.mark.parametrize("chunk", [1, 3, P])
    @pytest.mark.parametrize(("mix", "temperature"), [(0.0, 1.0), (0.3, 1.0), (1.0, 1.0), (0.5, 2.5)])
    def test_any_chunk_size_equals_plain_distillation(self, chunk, mix, temperature):
        hidden, head = inputs()
        states = draw(P, H, seed=2)
        plain = plain_loss(hidden, head, LABELS, teacher=states, mix=mix, temperature=temperature)
        teacher = Teacher(states, mix=mix, temperature=temperature)
        chunked = head_loss(hidden, head, LABELS, chunk=chunk, teacher=teacher)
        torch.testing.assert_close(chunked.loss, plain.loss, atol=1e-12, rtol=0)
        assert torch.equal(chunked.correct, plain.correct)
        expected, got = (
            torch.autograd.grad((WEIGHTS * losses.loss).sum(), hidden)[0] for losses in (plain, chunked)
        )
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)

    @pytest.mark.parametrize("teacher", [None, Teacher(draw(P, H, seed=2), mix=0.5, temperature=2.0)])
    def test_gradcheck(self, teacher):
        hidden, head = inputs()

        def loss(h):
            return head_loss(h, head, LABELS, chunk=3, teacher=teacher).loss

        assert torch.autograd.gradcheck(loss, (hidden,))

    def test_no_positions_cost_nothing_and_still_reach_the_drafter(self):
        hidden, head = inputs()
        losses = head_loss(hidden[:0], head, LABELS[:0], chunk=3)
        losses.loss.sum().backward()
        assert torch.equal(hidden.grad, torch.zeros_like(hidden))  # zeros, not None: DDP needs every gradient

    def test_a_chunk_of_no_positions_is_refused(self):
        hidden, head = inputs()
        with pytest.raises(ValueError, match="chunk counts positions, so it must be at least 1, got 0"):
            head_loss(hidden, head, LABELS, chunk=0)


class TestGradient:
    def test_it_is_softmax_minus_onehot_times_the_weight(self):
        logits, identity = draw(P, V, seed=3).requires_grad_(), torch.eye(V, dtype=torch.float64)
        loss = head_loss(logits, identity, LABELS, chunk=2).loss
        (grad,) = torch.autograd.grad((loss * WEIGHTS).sum() / WEIGHTS.sum(), logits)
        expected = (logits.softmax(-1) - F.one_hot(LABELS, V)) * (WEIGHTS / WEIGHTS.sum())[:, None]
        torch.testing.assert_close(grad, expected, atol=1e-15, rtol=0)

    def test_the_head_gets_none(self):
        hidden, head = inputs()
        head.requires_grad_()
        head_loss(hidden, head, LABELS, chunk=3).loss.sum().backward()
        assert head.grad is None

    def test_without_grad_nothing_is_stored(self):
        hidden, head = inputs()
        with torch.no_grad():
            assert head_loss(hidden, head, LABELS, chunk=3).loss.grad_fn is None


class TestValues:
    @pytest.mark.parametrize("vocabulary", [53, 49_152, 151_936])
    def test_uniform_logits_cost_ln_v_whatever_the_weights(self, vocabulary):
        hidden, head = torch.zeros(6, 2), draw(vocabulary, 2, seed=1, dtype=torch.float32)
        for teacher in (None, Teacher(torch.ones(6, 2), mix=0.5)):
            loss = head_loss(hidden, head, torch.arange(6), chunk=2, teacher=teacher).loss.view(1, 2, 3)
            for weights in (
                position_weights(4, 2.0),
                DPace().weights(loss, torch.ones_like(loss, dtype=torch.bool)),
            ):
                mean = (loss * weights).sum() / (weights * torch.ones_like(loss)).sum()
                assert math.isclose(mean, math.log(vocabulary), rel_tol=1e-6)

    def test_the_teachers_term_is_soft_cross_entropy(self):
        p, q = (
            torch.tensor([[a, b, c]], dtype=torch.float64) for a, b, c in ((0.7, 0.2, 0.1), (0.5, 0.3, 0.2))
        )
        identity, label = torch.eye(3, dtype=torch.float64), torch.tensor([0])
        teacher = Teacher(p.log(), mix=1.0)
        soft = head_loss(q.log(), identity, label, chunk=1, teacher=teacher).loss.item()
        entropy = -(p * p.log()).sum().item()
        assert math.isclose(soft, 0.886941, abs_tol=1e-6)
        assert math.isclose(soft - entropy, 0.085123, abs_tol=1e-6)  # KL(p || q)
        half = Teacher(p.log(), mix=0.5)
        mixed = head_loss(q.log(), identity, label, chunk=1, teacher=half).loss.item()
        assert math.isclose(mixed, 0.5 * 0.693147 + 0.5 * 0.886941, abs_tol=1e-6)

    def test_a_hopeless_token_costs_its_logit_not_infinity(self):
        hidden = torch.tensor([[0.0, 5000.0]], requires_grad=True)
        loss = head_loss(hidden, torch.eye(2), torch.tensor([0]), chunk=1).loss
        loss.sum().backward()
        assert loss.item() == 5000
        assert hidden.grad.tolist() == [[-1.0, 1.0]]


class TestPrecision:
    def test_bf16_products_with_an_fp32_softmax(self):
        hidden, head = draw(64, 32, seed=0).bfloat16().requires_grad_(), draw(500, 32, seed=1).bfloat16()
        labels = torch.arange(64)
        losses = head_loss(hidden, head, labels, chunk=20)
        assert losses.loss.dtype == torch.float32
        losses.loss.sum().backward()
        assert hidden.grad.dtype == torch.bfloat16
        exact = hidden.detach().double().requires_grad_()
        plain = plain_loss(exact, head.double(), labels)
        plain.loss.sum().backward()
        assert (losses.loss - plain.loss).abs().max() < 0.1  # logits near 20 are rounded to steps of 0.125
        assert (hidden.grad - exact.grad).norm() < 0.01 * exact.grad.norm()

    @pytest.mark.parametrize("agreement", [0.95, 0.98])
    def test_a_nearly_sure_drafter_keeps_its_gradient_in_bf16(self, agreement):
        """At 98 % agreement a divergence computed in bf16 loses up to a third of its gradient."""
        vocabulary = 1000
        p = torch.full((1, vocabulary), (1 - agreement) / (vocabulary - 1), dtype=torch.float64)
        p[0, 7] = agreement
        target = p.log().bfloat16()
        drafted = (p.log() + 0.3 * draw(1, vocabulary, seed=5)).bfloat16()
        identity = torch.eye(vocabulary)
        for mix in (0.0, 1.0):
            grads = []
            for dtype in (torch.bfloat16, torch.float64):
                logits = drafted.detach().to(dtype, copy=True).requires_grad_()
                teacher = Teacher(target.to(dtype), mix=mix)
                head_loss(
                    logits, identity.to(dtype), torch.tensor([7]), chunk=1, teacher=teacher
                ).loss.sum().backward()
                grads.append(logits.grad.double())
            assert (grads[0] - grads[1]).norm() < 0.005 * grads[1].norm()

    def test_autocast_decides_the_products_dtype_alone(self):
        hidden, head = draw(9, 8, seed=0, dtype=torch.float32).requires_grad_(), draw(20, 8, seed=1)
        with torch.autocast("cpu", torch.bfloat16):
            cast = head_loss(hidden, head.float(), torch.arange(9), chunk=4)
        by_hand = head_loss(hidden.bfloat16(), head.bfloat16(), torch.arange(9), chunk=4)
        assert torch.equal(cast.loss, by_hand.loss)
        cast.loss.sum().backward()
        assert hidden.grad.dtype == torch.float32

    def test_a_bf16_head_serves_an_fp32_drafter(self):
        hidden, head = draw(9, 8, seed=0, dtype=torch.float32), draw(20, 8, seed=1).bfloat16()
        got = head_loss(hidden, head, torch.arange(9), chunk=4).loss
        torch.testing.assert_close(got, plain_loss(hidden, head.float(), torch.arange(9)).loss)
