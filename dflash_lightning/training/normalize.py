"""Global loss normalisation, finite check and clipping: one place, one pass over the gradients.

in    gradients of raw numerators (sum of weight x loss), already averaged over ranks by DDP or FSDP2 and
      divided by the accumulation by Lightning
out   gradients of the weighted mean loss over the window and all ranks, clipped; or none at all
law   2 ranks x 2 micro-batches give the gradient of one process over the same samples (spec/dflash.md 2.6.1)
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """What one optimizer step did. Callbacks read it as `module.last_step`."""

    step: int
    """Optimizer steps since the run began, this one and skipped ones included."""
    norm: float
    """Global gradient norm before clipping, of the normalised loss."""
    clip_factor: float
    """What clipping multiplied the gradients by; 1 where it did nothing."""
    weight: float
    """Sum of the loss weights over the window and all ranks: the denominator of the loss."""
    scale: float
    """What normalisation multiplied the raw gradients by."""
    skipped: bool
    """True when the norm was not finite, or nothing was supervised: no weight has changed."""


def raw_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Global L2 norm of the gradients as they are, fp32; 0 where there are none.

    Of gradients that are split over ranks it is the norm of the whole, and a collective.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients) if gradients else torch.zeros(())
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def window_scale(*, weight: float, world: int, accumulate: int) -> float:
    """Undoes both averages and divides by the window's weight sum, once: world x accumulation / weight."""
    return world * accumulate / weight if weight else 0.0


def clip_factor(norm: float, max_norm: float | None) -> float:
    """min(1, max_norm / norm); 1 without a limit."""
    if not max_norm or norm <= max_norm:
        return 1.0
    return max_norm / norm


@torch.no_grad()
def apply_scale(parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Multiply every gradient by `factor`, in place."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    if gradients:
        torch._foreach_mul_(gradients, factor)


def drop_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Without gradients the optimizer's step touches neither weights nor its state, count included."""
    for parameter in parameters:
        parameter.grad = None


def normalize_gradients(
    parameters: list[nn.Parameter],
    *,
    norm: float,
    non_finite: bool,
    weight: float,
    world: int,
    accumulate: int,
    max_norm: float | None,
    step: int,
) -> StepRecord:
    """Turn raw gradients with global norm `norm` into those of the mean loss, clipped to `max_norm`.

    `non_finite` must be agreed by all ranks: a rank that skips alone would drift away from the others.
    """
    scale = window_scale(weight=weight, world=world, accumulate=accumulate)
    skipped = non_finite or not weight
    clip = clip_factor(norm * scale, max_norm) if not skipped else math.nan
    if skipped:
        drop_gradients(parameters)
    else:
        apply_scale(parameters, scale * clip)
    return StepRecord(
        step=step, norm=norm * scale, clip_factor=clip, weight=weight, scale=scale, skipped=skipped
    )
