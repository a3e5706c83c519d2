"""The state between rounds of one decoding, whatever shape the drafts have (spec/dflash.md 4.1).

in    target, drafter, prompt
out   hidden states of the block to be drafted; a target pass over drafts; what stands is kept
law   a rejected token leaves nothing behind, neither in a cache nor among the taps
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from dflash_lightning.decoding.sampling import Sampling, TokenChoice
from dflash_lightning.decoding.verify import keep_rows, require_prompt
from dflash_lightning.drafter.cache import DrafterCache
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.layers import require_croppable
from dflash_lightning.target.model import Target


class Rounds:
    """Anchor, caches and taps of one prompt.

    Always: the target's cache holds exactly the `start` committed tokens before the anchor, the drafter's
    cache holds `start - taps.shape[1]` of them, and `taps` are the target's states of the rest.
    """

    def __init__(
        self,
        target: Target,
        drafter: DFlashDrafter,
        prompt_ids: Sequence[int],
        *,
        block_size: int,
        sampling: Sampling | None = None,
    ) -> None:
        require_croppable(target.config)
        require_prompt(prompt_ids)
        self.target, self.drafter, self.block_size = target, drafter, block_size
        self.layer_ids = drafter.config.target_layer_ids
        self.choice = TokenChoice(sampling)
        self.cache = DynamicCache()  # without a config: sliding layers keep all positions and can be cropped
        self.drafter_cache = DrafterCache(drafter.config.num_layers)
        self.start = 0
        self.anchor = torch.tensor([prompt_ids], device=target.device)
        self.taps = torch.empty(0)

    def prefill(self) -> int:
        """Run the prompt; the target's token behind it becomes the first anchor and is returned."""
        states = self.target.extend(self.anchor, self.layer_ids, cache=self.cache)
        self.start, self.taps = self.anchor.shape[1], states.taps
        self.anchor = self.own_tokens(states, torch.tensor([self.start]), last=1)
        return int(self.anchor)

    def draft_states(self) -> Float[Tensor, "k h"]:
        """The drafter's hidden states of the block_size - 1 slots behind the anchor."""
        masks = self.anchor.new_full((self.block_size - 1,), self.drafter.config.mask_token_id)
        like = self.drafter.fc.weight
        block = self.target.embed(torch.cat((self.anchor, masks))[None]).to(like)
        end = self.start + self.block_size
        positions = torch.arange(self.drafter_cache.length, end, device=like.device)[None]
        hidden: Tensor = self.drafter(block, self.taps.to(like), positions, None, self.drafter_cache)
        self.taps = self.taps[:, :0]
        return hidden[0, 1:]

    def verify(self, drafted: Int[Tensor, " k"], **options: Any) -> TargetStates:
        """Run the target over the anchor and the drafts; the cache grows by all of them."""
        return self.target.extend(
            torch.cat((self.anchor, drafted))[None], self.layer_ids, cache=self.cache, **options
        )

    def own_tokens(
        self, states: TargetStates, positions: Int[Tensor, " p"], *, last: int = 0
    ) -> Int[Tensor, " p"]:
        """The target's token behind each of these states (behind the `last` ones only), by its position."""
        assert states.final is not None
        hidden = states.final[0, -last:]
        return self.choice.tokens(hidden, self.target.head, positions.to(hidden.device))

    def keep(self, states: TargetStates, rows: Sequence[int], following: int) -> None:
        """Of the verified tokens, those at `rows` (the anchor is row 0) stand; `following` is the anchor
        now."""
        keep_rows(self.cache, self.start, rows)
        kept = torch.tensor(rows, device=states.taps.device)
        self.taps = torch.cat((self.taps, states.taps[:, kept]), dim=1)  # never a rejected token's state
        self.start += len(rows)
        self.anchor = self.anchor.new_tensor([following])


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
