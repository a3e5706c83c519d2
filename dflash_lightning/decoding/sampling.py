"""Choosing tokens: the likeliest, or a random one under temperature, top-k and top-p.

in    hidden states and the head, or logits
out   token ids
law   the token at a position depends on the seed, the position and the target's distribution there, on
      nothing else: however it is drafted, a sampled text is the text of plain sampling with this seed (fp32)
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dflash_lightning.decoding.verify import LOGITS_AT_ONCE, greedy_tokens

COLDEST = 1e-5
STREAM_BLOCK = 1024  # random numbers are drawn in pieces of this size, so that they do not depend on demand


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are drawn. Spec/dflash.md 4.3."""

    temperature: float = 1.0
    """Divides the logits; below 1e-5 the likeliest token is taken."""
    top_k: int = 0
    """Only the k likeliest tokens, and those that tie with the last of them; 0: all."""
    top_p: float = 1.0
    """Only the fewest tokens, likeliest first, whose probabilities sum to this share; 1: all."""
    seed: int = 0
    """Same seed, same text. Give each prompt its own: equal seeds share the luck of a position."""
    method: Literal["coupling", "rejection"] = "coupling"
    """coupling: drafts are the drafter's likeliest tokens and stand where the target draws the same.
    rejection: drafts are drawn from the drafter, and stand more often; chains only."""

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature divides the logits and is at least 0, got {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k counts tokens, 0 for all, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is a share above 0 and at most 1, got {self.top_p}")

    @property
    def greedy(self) -> bool:
        return self.temperature < COLDEST

    @property
    def draft_seed(self) -> int:
        """What drafts are drawn with: far from the seeds of the positions' luck, for a token of the target
        and a draft that shared a random number would not be independent. (torch reads 32 bits of a seed.)"""
        return (1 << 31) + self.seed


def probabilities(logits: Float[Tensor, "p v"], sampling: Sampling) -> Float[Tensor, "p v"]:
    """The distributions that are drawn from, in float64: temperature, then top-k, then top-p."""
    scaled = logits.double() / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[-1]:
        least = scaled.topk(sampling.top_k, dim=-1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    if sampling.top_p < 1:
        scaled = scaled.masked_fill(_outside_nucleus(scaled.softmax(-1), sampling.top_p), -torch.inf)
    return scaled.softmax(-1)


def draw(odds: Float[Tensor, "p v"], uniforms: Float[Tensor, " p"]) -> Int[Tensor, " p"]:
    """One token per row by inversion: the first whose cumulated odds exceed uniform x their sum.

    `odds` are probabilities up to a factor of their row; a token without odds is never drawn.
    """
    cumulated = odds.double().cumsum(-1)
    total = cumulated[:, -1:]
    # rounding must not carry the threshold to the total, which nothing exceeds
    threshold = torch.minimum(uniforms.to(total)[:, None] * total, total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(cumulated, threshold, right=True)[:, 0]


class TokenChoice:
    """The target's own tokens, each at its position."""

    def __init__(self, sampling: Sampling | None) -> None:
        self.sampling = None if sampling is None or sampling.greedy else sampling
        self.luck = None if self.sampling is None else PositionLuck(self.sampling.seed)

    def tokens(
        self, hidden: Float[Tensor, "p h"], head: Float[Tensor, "v h"], positions: Int[Tensor, " p"]
    ) -> Int[Tensor, " p"]:
        """The token for each of `positions` (where it will stand), with bounded logits in memory."""
        if self.sampling is None or self.luck is None:
            return greedy_tokens(hidden, head)
        rows = max(1, LOGITS_AT_ONCE // head.shape[0])
        luck = torch.split(self.luck.at(positions), rows)
        parts = zip(torch.split(hidden, rows), luck, strict=True)
        return torch.cat([draw(probabilities(h.to(head) @ head.T, self.sampling), u) for h, u in parts])


class PositionLuck:
    """One uniform number in [0, 1) per position of the text, fixed by the seed."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._stream = torch.empty(0, dtype=torch.float64)

    def at(self, positions: Int[Tensor, " p"]) -> Float[Tensor, " p"]:
        while len(self._stream) <= int(positions.max()):
            more = torch.rand(STREAM_BLOCK, generator=self._generator, dtype=torch.float64)
            self._stream = torch.cat((self._stream, more))
        return self._stream.to(positions.device)[positions]


def _outside_nucleus(probs: Float[Tensor, "p v"], top_p: float) -> Tensor:
    """True for tokens that are not needed: those before them, likeliest first, already sum to top_p."""
    ordered, order = probs.sort(dim=-1, descending=True)
    surplus = ordered.cumsum(-1) - ordered >= top_p
    return torch.zeros_like(surplus).scatter(-1, order, surplus)
