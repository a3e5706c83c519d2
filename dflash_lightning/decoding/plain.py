"""Plain greedy decoding with a cache: what every other way of decoding must reproduce.

in    target, prompt
out   its greedy text, one token per round
"""

from collections.abc import Collection, Sequence

import torch
from transformers import DynamicCache

from dflash_lightning.decoding.decoded import Decoded, OnRound, Transcript
from dflash_lightning.decoding.verify import greedy_tokens, require_prompt
from dflash_lightning.target.model import Target


@torch.no_grad()
def decode_plain(
    target: Target,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    stop_ids: Collection[int] = (),
    on_round: OnRound | None = None,
) -> Decoded:
    """Decode one prompt greedily, a token per target pass; the text ends with the first stop token,
    inclusive.

    Raises:
        ValueError: the prompt is empty.
    """
    require_prompt(prompt_ids)
    transcript, cache = Transcript(max_new_tokens, stop_ids, on_round), DynamicCache()
    ids = torch.tensor([prompt_ids], device=target.device)
    while transcript.left > 0:
        final = target.extend(ids, (), cache=cache).final
        assert final is not None
        ids = greedy_tokens(final[0, -1:], target.head)[None]
        transcript.add(ids[0].tolist())
    return transcript.result()
