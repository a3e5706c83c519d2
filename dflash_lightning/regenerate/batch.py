"""Several prompts answered at once by the target, a token each per pass.

in    target, prompts of any lengths (padded on the left), a limit of new tokens and a seed for each
out   new tokens of each, its stop token included
law   an answer is that of plain decoding with its seed, whoever is in the batch, up to the rounding of sums
      over padding: in float32 a tie, in bfloat16 a near-tie may fall the other way
"""

from collections.abc import Callable, Collection, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from dflash_lightning.decoding.sampling import PositionLuck, Sampling, draw, probabilities
from dflash_lightning.decoding.verify import greedy_tokens, require_prompt
from dflash_lightning.target.model import Target

OnTokens = Callable[[int], None]


@torch.no_grad()
def answer_batch(
    target: Target,
    prompts: Sequence[Sequence[int]],
    *,
    limits: Sequence[int],
    stop_ids: Collection[int],
    sampling: Sampling | None = None,
    seeds: Sequence[int] = (),
    on_tokens: OnTokens = lambda count: None,
) -> list[list[int]]:
    """New tokens of each prompt; a row leaves the batch when its answer ends.

    Args:
        limits: most new tokens of each prompt, at least 1.
        sampling: None or temperature 0: the likeliest tokens. Its own seed is not used:
        seeds: one for each prompt, where tokens are drawn.

    Raises:
        ValueError: a prompt is empty.
    """
    for prompt in prompts:
        require_prompt(prompt)
    ids, mask = _padded_left(prompts, target.device)
    choose = _Choice(target, prompts, limits, sampling, seeds)
    cache, rows = DynamicCache(), list(range(len(prompts)))
    answers: list[list[int]] = [[] for _ in prompts]
    while rows:
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        final = target.extend(ids, (), cache=cache, positions=positions, mask=mask).final
        assert final is not None
        tokens = choose(final[:, -1], rows, len(answers[rows[0]]))
        for row, token in zip(rows, tokens.tolist(), strict=True):
            answers[row].append(token)
        on_tokens(len(rows))
        stay = [
            i
            for i, row in enumerate(rows)
            if answers[row][-1] not in stop_ids and len(answers[row]) < limits[row]
        ]
        if stay and len(stay) < len(rows):
            kept = torch.tensor(stay, device=target.device)
            cache.batch_select_indices(kept)
            mask, tokens = mask[kept], tokens[kept]
        rows = [rows[i] for i in stay]
        ids = tokens[:, None]
        mask = torch.cat([mask, torch.ones_like(ids)], dim=1) if rows else mask
    return answers


class _Choice:
    """The next token of each row, by the likeliest or by the row's own luck."""

    def __init__(
        self,
        target: Target,
        prompts: Sequence[Sequence[int]],
        limits: Sequence[int],
        sampling: Sampling | None,
        seeds: Sequence[int],
    ) -> None:
        self._head = target.head
        self._sampling = None if sampling is None or sampling.greedy else sampling
        if self._sampling is not None:
            luck = [_luck(seed, len(prompt), limits) for seed, prompt in zip(seeds, prompts, strict=True)]
            self._luck = torch.stack(luck).to(target.device)

    def __call__(self, hidden: Float[Tensor, "b h"], rows: Sequence[int], step: int) -> Int[Tensor, " b"]:
        if self._sampling is None:
            return greedy_tokens(hidden, self._head)
        odds = probabilities(hidden.to(self._head) @ self._head.T, self._sampling)
        return draw(odds, self._luck[list(rows), step])


def _luck(seed: int, start: int, limits: Sequence[int]) -> Float[Tensor, " n"]:
    """Numbers of the places where an answer that starts at `start` can stand, as in plain decoding."""
    return PositionLuck(seed).at(torch.arange(start, start + max(limits)))


def _padded_left(
    prompts: Sequence[Sequence[int]], device: torch.device
) -> tuple[Int[Tensor, "b s"], Int[Tensor, "b s"]]:
    """Ids, and 1 where they are real."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    real = torch.tensor(
        [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device
    )
    return ids, real
