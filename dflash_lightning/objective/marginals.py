"""The likeliest tokens of each drafted slot: what a tree of drafts is made of.

in    hidden states of the drafter, the target's head
out   per slot the k largest log-probabilities over the whole vocabulary, largest first, and their tokens
law   log-probabilities are multiples of 2^-32: sums of them are exact in float64, so that the score of a path
      is the same number however it was added up, and a tie is a tie
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

GRID = 2.0**32
FLOOR = -4096.0


class Marginals(NamedTuple):
    """The best tokens of slots, in descending order of probability."""

    log_probs: Float[Tensor, "*slots k"]
    """float64, on the grid."""
    token_ids: Int[Tensor, "*slots k"]


@torch.no_grad()
def best_tokens(hidden: Float[Tensor, "p h"], head: Float[Tensor, "v h"], *, k: int, chunk: int) -> Marginals:
    """The k likeliest tokens (all, if there are fewer) of every slot, with `chunk` rows of logits in
    memory."""
    parts = [best_of(part.to(head) @ head.T, k=k) for part in torch.split(hidden, chunk)]
    return Marginals(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def best_of(logits: Float[Tensor, "*slots v"], *, k: int) -> Marginals:
    """Top k of the logits less their logsumexp over the full vocabulary (spec/dflash.md 4.4.1)."""
    wide = logits.float()
    values, token_ids = wide.topk(min(k, wide.shape[-1]), dim=-1)
    log_probs = values.double() - wide.logsumexp(dim=-1, keepdim=True).double()
    return Marginals(on_grid(log_probs), token_ids)


def on_grid(log_probs: Float[Tensor, "*slots k"]) -> Float[Tensor, "*slots k"]:
    """Rounded to multiples of 2^-32 between FLOOR and 0, in float64."""
    return (log_probs.double() * GRID).round().div(GRID).clamp(FLOOR, 0.0)
