"""The two ends of a target that a drafter borrows, on the drafter's device.

law   no copy where the target lives there; a tied pair stays one tensor
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from dflash_lightning.target.model import Target


@dataclass(frozen=True)
class TargetEnds:
    """Embedding and head without what lies between."""

    embedding: Float[Tensor, "v h"]
    head: Float[Tensor, "v h"]
    """Weight of the output projection."""

    @torch.no_grad()
    def embed(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape h"]:
        """Rows of the input embedding, without gradient."""
        return F.embedding(ids, self.embedding)


def ends_of(target: Target, device: torch.device) -> TargetEnds:
    """The ends of `target` on `device`."""
    embedding = target.parts.embed.weight.detach()
    tied = target.head.data_ptr() == embedding.data_ptr()
    here = embedding.to(device)
    return TargetEnds(here, here if tied else target.head.detach().to(device))
