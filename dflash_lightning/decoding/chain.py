"""Greedy draft and verify, one chain of drafted tokens per round (spec/dflash.md 4.1, 4.2).

in    target, drafter, prompt
out   the target's own greedy text, and the tokens each round committed
law   token for token the target's greedy text (fp32) whatever the drafter: only the number of rounds is its
      merit

The drafter always fills its whole block, as trained; near the limit the target merely verifies fewer of the
slots.
"""

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import DynamicCache

from dflash_lightning.decoding.decoded import Decoded, OnRound, Transcript
from dflash_lightning.decoding.verify import accepted, crop_to, greedy_tokens, require_prompt
from dflash_lightning.drafter.cache import DrafterCache
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.target.layers import require_croppable
from dflash_lightning.target.model import Target


@torch.no_grad()
def decode_chain(
    target: Target,
    drafter: DFlashDrafter,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    stop_ids: Collection[int] = (),
    block_size: int | None = None,
    on_round: OnRound | None = None,
) -> Decoded:
    """Decode one prompt greedily with drafts.

    Args:
        stop_ids: the text ends with the first of these, inclusive.
        block_size: slots per block, anchor included; at most the trained size (default). 1 drafts nothing.
        on_round: receives the newly committed tokens, for streaming.

    Raises:
        ValueError: empty prompt, block size out of range, or a target that cannot forget rejected tokens.
    """
    block_size = resolve_block_size(drafter, block_size)
    transcript = Transcript(max_new_tokens, stop_ids, on_round)
    chain = Chain(target, drafter, prompt_ids, block_size=block_size)
    if transcript.left > 0:
        transcript.add([chain.prefill()])
    while transcript.left > 0:
        drafted = chain.draft()
        transcript.add(chain.commit(drafted[: transcript.left - 1]))  # the target adds one of its own
    return transcript.result()


class Chain:
    """The state between rounds of one decoding.

    Always: the target's cache holds exactly the `start` committed tokens before the anchor, the drafter's
        cache
    holds `start - taps.shape[1]` of them, and `taps` are the target's states of the rest.
    """

    def __init__(
        self, target: Target, drafter: DFlashDrafter, prompt_ids: Sequence[int], *, block_size: int
    ) -> None:
        require_croppable(target.config)
        require_prompt(prompt_ids)
        self.target, self.drafter, self.block_size = target, drafter, block_size
        self.layer_ids = drafter.config.target_layer_ids
        self.cache = DynamicCache()  # without a config: sliding layers keep all positions and can be cropped
        self.drafter_cache = DrafterCache(drafter.config.num_layers)
        self.start = 0
        self.anchor = torch.tensor([prompt_ids], device=target.device)
        self.taps = torch.empty(0)

    def prefill(self) -> int:
        """Run the prompt; its greedy successor becomes the first anchor and is returned."""
        states = self.target.extend(self.anchor, self.layer_ids, cache=self.cache)
        assert states.final is not None
        self.start, self.taps = self.anchor.shape[1], states.taps
        self.anchor = greedy_tokens(states.final[0, -1:], self.target.head)
        return int(self.anchor)

    def draft(self) -> Int[Tensor, " k"]:
        """The drafter's tokens for the block_size - 1 positions behind the anchor."""
        if self.block_size == 1:
            return self.anchor[:0]
        masks = self.anchor.new_full((self.block_size - 1,), self.drafter.config.mask_token_id)
        like = self.drafter.fc.weight
        block = self.target.embed(torch.cat((self.anchor, masks))[None]).to(like)
        end = self.start + self.block_size
        positions = torch.arange(self.drafter_cache.length, end, device=like.device)[None]
        hidden = self.drafter(block, self.taps.to(like), positions, None, self.drafter_cache)
        self.taps = self.taps[:, :0]
        return greedy_tokens(hidden[0, 1:], self.target.head)

    def commit(self, drafted: Int[Tensor, " k"]) -> list[int]:
        """Let the target judge the drafted tokens: those that stand, and one of its own, the next anchor."""
        block = torch.cat((self.anchor, drafted))
        states = self.target.extend(block[None], self.layer_ids, cache=self.cache)
        assert states.final is not None
        verified = greedy_tokens(states.final[0], self.target.head)
        count = accepted(drafted, verified[:-1])
        self.start += count + 1
        crop_to(self.cache, self.start)
        self.taps = torch.cat(
            (self.taps, states.taps[:, : count + 1]), dim=1
        )  # never a rejected slot's state
        self.anchor = verified[count : count + 1]
        return [*drafted[:count].tolist(), int(self.anchor)]


def resolve_block_size(drafter: DFlashDrafter, block_size: int | None) -> int:
    """The trained block size, or a smaller one on request.

    Raises:
        ValueError: more slots than the drafter was trained with, or fewer than one.
    """
    trained = drafter.config.block_size
    if block_size is None:
        return trained
    if not 1 <= block_size <= trained:
        raise ValueError(
            f"block_size is {block_size}, but this drafter was trained with {trained}; choose 1 to {trained}"
        )
    return block_size
