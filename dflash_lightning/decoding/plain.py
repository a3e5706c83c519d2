"""Plain decoding with a cache: what every other way of decoding must reproduce.

in    target, prompt
out   its greedy text, or one drawn from it, one token per round
"""

from collections.abc import Collection, Sequence

import torch
from transformers import DynamicCache

from dflash_lightning.decoding.decoded import Decoded, OnRound, Transcript
from dflash_lightning.decoding.sampling import Sampling, TokenChoice
from dflash_lightning.decoding.verify import require_prompt
from dflash_lightning.target.model import Target


@torch.no_grad()
def decode_plain(
    target: Target,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    stop_ids: Collection[int] = (),
    sampling: Sampling | None = None,
    on_round: OnRound | None = None,
) -> Decoded:
    """Decode one prompt, a token per target pass; the text ends with the first stop token, inclusive.

    `sampling` None takes the likeliest tokens; its `method` means nothing without drafts.

    Raises:
        ValueError: the prompt is empty.
    """
    require_prompt(prompt_ids)
    transcript, cache = Transcript(max_new_tokens, stop_ids, on_round), DynamicCache()
    ids = torch.tensor([prompt_ids], device=target.device)
    choice, position = TokenChoice(sampling), torch.tensor([len(prompt_ids)], device=target.device)
    while transcript.left > 0:
        final = target.extend(ids, (), cache=cache).final
        assert final is not None
        ids = choice.tokens(final[0, -1:], target.head, position)[None]
        position = position + 1
        transcript.add(ids[0].tolist())
    return transcript.result()
