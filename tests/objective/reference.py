"""The plain way to the same numbers: all logits at once, every derivative by autograd."""

import torch
from torch import Tensor
from torch.nn import functional as F

from dflash_lightning.objective import TokenLosses


def plain_loss(
    hidden: Tensor,
    head: Tensor,
    labels: Tensor,
    *,
    teacher: Tensor | None = None,
    mix: float = 0.0,
    temperature: float = 1.0,
) -> TokenLosses:
    logits = hidden @ head.T
    loss = F.cross_entropy(logits, labels, reduction="none")
    if teacher is not None:
        p = (teacher @ head.T / temperature).softmax(-1)
        divergence = F.kl_div((logits / temperature).log_softmax(-1), p, reduction="none").sum(-1)
        entropy = torch.special.entr(p).sum(-1)
        loss = (1 - mix) * loss + mix * temperature**2 * (divergence + entropy)
    return TokenLosses(loss, logits.argmax(-1) == labels)


def draw(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
