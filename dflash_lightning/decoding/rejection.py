"""Rejection sampling of a drafted chain: drafts are random too, and the text is still the target's.

in    drafted tokens, the distributions they were drawn from, the target's distributions
out   how many stand, and the token that follows them
law   each committed token is distributed as the target's own; a draft stands with probability sum min(p, q)
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dflash_lightning.decoding.sampling import Sampling, draw, probabilities


def verdict(
    drafted: Int[Tensor, " k"],
    proposed: Float[Tensor, "k v"],
    wanted: Float[Tensor, "verified v"],
    uniforms: Float[Tensor, " verified"],
) -> tuple[int, int]:
    """(drafts that stand, token behind them). Spec/dflash.md 4.3 (b).

    Args:
        proposed: q, the very distribution each slot was drawn from.
        wanted: p of the k drafted positions and of the one behind them.
        uniforms: one number in [0, 1) per slot, and one for the token behind.
    """
    slots = torch.arange(len(drafted), device=drafted.device)
    stands = uniforms[:-1] * proposed[slots, drafted] < wanted[slots, drafted]
    count = int(stands.long().cumprod(0).sum())
    odds = wanted[count] if count == len(drafted) else residual(wanted[count], proposed[count])
    return count, int(draw(odds[None], uniforms[-1:]))


def residual(wanted: Float[Tensor, " v"], proposed: Float[Tensor, " v"]) -> Float[Tensor, " v"]:
    """What the target wants beyond what was proposed, unnormalised; p itself where rounding left nothing."""
    beyond = (wanted - proposed).clamp(min=0)
    return beyond if beyond.any() else wanted


class RejectionSampler:
    """Draws a round's drafts and judges them; remembers their distributions in between."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._generator = torch.Generator().manual_seed(sampling.draft_seed)
        self._proposed = torch.empty(0)

    def draft(self, hidden: Float[Tensor, "k h"], head: Float[Tensor, "v h"]) -> Int[Tensor, " k"]:
        """One random token per slot: slots are drawn independently, as the drafter gives marginals."""
        self._proposed = self._odds(hidden, head)
        return draw(self._proposed, self._uniforms(len(hidden), head))

    def judge(
        self, drafted: Int[Tensor, " k"], hidden: Float[Tensor, "verified h"], head: Float[Tensor, "v h"]
    ) -> tuple[int, int]:
        """The verdict on the drafts just made, or on the first of them."""
        proposed = self._proposed[: len(drafted)]
        return verdict(drafted, proposed, self._odds(hidden, head), self._uniforms(len(hidden), head))

    def _odds(self, hidden: Tensor, head: Tensor) -> Tensor:
        return probabilities(hidden.to(head) @ head.T, self._sampling)

    def _uniforms(self, count: int, head: Tensor) -> Tensor:
        return torch.rand(count, generator=self._generator, dtype=torch.float64).to(head.device)
