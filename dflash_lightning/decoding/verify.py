"""The small decisions of draft and verify: which draft tokens stand, and how a cache forgets the others.

in    drafted and verified tokens; hidden states and a head; a cache
out   counts, token ids, a shorter cache
law   a token stands only if everything drafted before it stands
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

LOGITS_AT_ONCE = 1 << 24  # entries of one chunk of logits: 64 MiB in float32


def accepted(drafted: Int[Tensor, " k"], verified: Int[Tensor, " k"]) -> int:
    """Length of the agreeing prefix, 0..k."""
    return int((drafted == verified).long().cumprod(0).sum())


def greedy_tokens(hidden: Float[Tensor, "p h"], head: Float[Tensor, "v h"]) -> Int[Tensor, " p"]:
    """Most likely token of each position, with a bounded part of the logits in memory at a time."""
    rows = max(1, LOGITS_AT_ONCE // head.shape[0])
    return torch.cat([(part.to(head) @ head.T).argmax(-1) for part in torch.split(hidden, rows)])


def crop_to(cache: Any, want: int) -> None:
    """Keep the first `want` positions of a transformers cache.

    `crop(0)` empties the cache in transformers 4 and positive counts raise in 5 (spec/dflash.md 1.3B), so
    it is called with a negative count or not at all.
    """
    surplus = cache.get_seq_length() - want
    if surplus > 0:
        cache.crop(-surplus)


def keep_rows(cache: Any, start: int, rows: Sequence[int]) -> None:
    """Of the positions from `start` on, keep those at start + rows, in ascending order and without gaps.

    Nothing is rotated again: each key was made for the position where it will stand (spec/dflash.md 4.4.3).
    """
    end = start + len(rows)
    if list(rows) != list(range(len(rows))):
        for layer in cache.layers:
            places = start + torch.tensor(rows, device=layer.keys.device)
            for states in (layer.keys, layer.values):
                states[..., start:end, :] = states[..., places, :]
    crop_to(cache, end)


def require_prompt(prompt_ids: Sequence[int]) -> None:
    """The first token needs something to follow."""
    if len(prompt_ids) == 0:
        raise ValueError("the prompt is empty: decoding needs at least one token, for example the bos token")
