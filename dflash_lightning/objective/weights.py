"""How much each slot of a block counts in the loss.

in    block size and decay, or the losses of the slots themselves (D-PACE)
out   weights per slot 1..B-1: [B-1], or [..., B-1] where they depend on the block
law   weights are constants of the loss: no gradient flows through them
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_PAPER_GAMMA = {16: 7.0, 10: 5.0, 8: 4.0}


def default_gamma(block_size: int) -> float:
    """The paper's decay constant for its block sizes, else max(2, B/2). Source: spec/dflash.md 2.5."""
    return _PAPER_GAMMA.get(block_size, max(2.0, block_size / 2))


def position_weights(block_size: int, gamma: float | None) -> Float[Tensor, " slots"]:
    """w_k = exp(-(k - 1) / gamma) for k = 1..B-1, fp32. `gamma` None or <= 0 means no decay: all ones."""
    if gamma is None or gamma <= 0:
        return torch.ones(block_size - 1)
    return torch.tensor([math.exp(-k / gamma) for k in range(block_size - 1)])


def dpace_weights(
    token_loss: Float[Tensor, "*blocks slots"], supervised: Bool[Tensor, "*blocks slots"], *, alpha: float
) -> Float[Tensor, "*blocks slots"]:
    """D-PACE: a slot counts by the expected accepted length that still depends on it.

    With confidences q = exp(-loss) smoothed to s = (1 - alpha) q + alpha, and C_k = s_1 .. s_k, slot k weighs
    the sum of C_m over supervised m >= k. Unsupervised slots weigh 0 and leave C alone. Spec/dflash.md 2.7.
    """
    confidence = torch.exp(-token_loss.detach())
    smoothed = torch.where(supervised, (1 - alpha) * confidence + alpha, 1.0)
    reached = smoothed.cumprod(-1) * supervised
    return reached.flip(-1).cumsum(-1).flip(-1) * supervised
