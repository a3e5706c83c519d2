"""Head and loss in one, a chunk of positions at a time: the logits never exist as a whole.

in    hidden states [p, h] of p supervised positions, the target's head [v, h], labels [p]
out   per position, the loss in fp32 and whether the argmax is the label
law   equals cross_entropy(hidden @ head.T) in value and gradient, for every chunk size

The loss of a position is later only multiplied by that position's weight. So d loss / d hidden, one row per
position, is computed in the forward pass, while the chunk's logits are at hand, and backward multiplies it by
the incoming gradient: two matrix products per chunk, where recomputing the logits in backward needs three.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable


class TokenLosses(NamedTuple):
    """Loss (fp32, or fp64 for fp64 input) and argmax == label, per position."""

    loss: Float[Tensor, " p"]
    correct: Bool[Tensor, " p"]


@dataclass(frozen=True)
class Teacher:
    """The target's opinion on the same positions, to be mixed into the loss.

    `hidden` [p, h] is the target's state after its final norm, one position earlier (anchor + k - 1 for slot
    k): the same head turns it into the distribution of the token the slot predicts.
    """

    hidden: Tensor
    mix: float
    """Share of the teacher's term: loss = (1 - mix) x token loss + mix x teacher term."""
    temperature: float = 1.0
    """Softens both distributions; the term is multiplied by temperature^2 to keep its gradient's size."""


def head_loss(
    hidden: Float[Tensor, "p h"],
    head: Float[Tensor, "v h"],
    labels: Int[Tensor, " p"],
    *,
    chunk: int,
    teacher: Teacher | None = None,
) -> TokenLosses:
    """Cross-entropy (mixed with the teacher's, if given) of `hidden @ head.T` against `labels`.

    Peak memory is `chunk` rows of logits in the matmul's dtype and in fp32. Under autocast the products run
    in its dtype; softmax and loss are always fp32. The head gets no gradient. Under no_grad nothing is kept.

    The teacher's term is the soft cross-entropy -sum p log q: KL(p || q) plus the teacher's entropy, so the
    gradient is that of KL, and uniform logits cost ln v as they do without a teacher. Spec/dflash.md 2.6-2.8.
    """
    if chunk < 1:
        raise ValueError(f"chunk counts positions, so it must be at least 1, got {chunk}")
    with_grad = torch.is_grad_enabled() and hidden.requires_grad
    # no-untyped-call: torch leaves Function.apply untyped
    loss, correct = _HeadLoss.apply(hidden, head.detach(), labels, chunk, teacher, with_grad)  # type: ignore[no-untyped-call]
    return TokenLosses(loss, correct)


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        labels: Tensor,
        chunk: int,
        teacher: Teacher | None,
        with_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        dtype = _matmul_dtype(hidden, head)
        states, head = hidden.to(dtype), head.to(dtype)
        teacher_states = None if teacher is None else teacher.hidden.to(dtype)
        scratch = _Scratch(min(chunk, len(labels)), head)
        loss = scratch.wide.new_empty(len(labels))
        correct = torch.empty_like(labels, dtype=torch.bool)
        grad = torch.empty_like(hidden) if with_grad else None
        for rows in _chunks(len(labels), chunk):
            logits, wide = scratch.project(states[rows])
            loss[rows], correct[rows], scale = _cross_entropy(logits, labels[rows], wide)
            if teacher is not None and teacher_states is not None:
                term, slope = _soft_cross_entropy(logits, teacher_states[rows] @ head.T, teacher.temperature)
                loss[rows] = torch.lerp(loss[rows], term, teacher.mix)
                wide.div_(scale[:, None]).lerp_(slope, teacher.mix)
                scale = torch.ones_like(scale)
            if grad is not None:
                # The narrow copy lands in the logits' room: they are spent, and fresh room costs page faults.
                grad[rows] = (logits.copy_(wide) @ head) / scale[:, None]
        if grad is not None:
            ctx.save_for_backward(grad)
        ctx.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = ctx.saved_tensors
        return grad * grad_loss[:, None].to(grad.dtype), None, None, None, None, None


class _Scratch:
    """Room for one chunk of logits, reused by all chunks."""

    def __init__(self, rows: int, head: Tensor) -> None:
        self.head = head
        self.logits = head.new_empty(rows, len(head))
        self.wide = self.logits.new_empty(rows, len(head), dtype=_softmax_dtype(head.dtype))

    def project(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of these states, and room of the same shape in the softmax's dtype."""
        logits = torch.mm(states, self.head.T, out=self.logits[: len(states)])
        return logits, self.wide[: len(states)]


def _cross_entropy(logits: Tensor, labels: Tensor, wide: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, argmax == label, and a scale: afterwards `wide / scale` is softmax - onehot, d loss / d logits.

    The one-hot is subtracted before anything is rounded: where the drafter is nearly sure, little remains.
    """
    peak, best = logits.max(dim=-1)  # argmax(), in bf16 on CPU, takes 4 times as long
    peak = peak.to(wide.dtype)
    picked = logits.gather(1, labels[:, None]).to(wide.dtype)
    wide.copy_(logits).sub_(peak[:, None]).exp_()
    total = wide.sum(dim=-1)
    wide.scatter_add_(1, labels[:, None], -total[:, None])
    return total.log() + peak - picked[:, 0], best == labels, total


def _soft_cross_entropy(logits: Tensor, teacher_logits: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """T^2 x (-sum p log q) at temperature T, and its derivative by the logits: T (q - p)."""
    dtype = _softmax_dtype(logits.dtype)
    log_q = (logits.to(dtype) / temperature).log_softmax(dim=-1)
    p = (teacher_logits.to(dtype) / temperature).softmax(dim=-1)
    term = -(p * log_q).sum(dim=-1) * temperature**2
    return term, log_q.exp_().sub_(p).mul_(temperature)


def _matmul_dtype(hidden: Tensor, head: Tensor) -> torch.dtype:
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return torch.promote_types(hidden.dtype, head.dtype)


def _softmax_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _chunks(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
