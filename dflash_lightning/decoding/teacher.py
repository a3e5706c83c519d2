"""What the drafter would draft at every token of a known text, in a few batched passes.

in    target, drafter, prompt and text as one list of ids
out   per token of the text but the last: how many drafted tokens behind it are right
law   on the target's greedy text these are the streaks that decode_chain meets at the anchors it visits
      (fp32)
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dflash_lightning.decoding.chain import resolve_block_size
from dflash_lightning.decoding.verify import greedy_tokens
from dflash_lightning.drafter.mask import build_masks
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.target.model import Target


@torch.no_grad()
def teacher_forced_streaks(
    target: Target,
    drafter: DFlashDrafter,
    ids: Sequence[int],
    prompt_length: int,
    *,
    block_size: int | None = None,
    anchors_at_once: int = 64,
) -> list[int]:
    """Streak at each anchor prompt_length .. len(ids) - 2; walk_rounds turns them into rounds.

    Args:
        ids: the prompt, then the text. The target reads them once, without a cache.
        anchors_at_once: blocks per forward pass of the drafter; bounds the memory, changes nothing else.
    """
    tokens = torch.tensor(ids, device=target.device)
    taps = target.tapped_states(tokens[None], drafter.config.target_layer_ids).taps
    size = resolve_block_size(drafter, block_size)
    anchors = torch.arange(prompt_length, len(ids) - 1, device=tokens.device)
    if len(anchors) == 0:
        return []
    streaks = [
        _streaks(target, drafter, tokens, taps, group, size)
        for group in torch.split(anchors, anchors_at_once)
    ]
    return torch.cat(streaks).tolist()


def _streaks(
    target: Target,
    drafter: DFlashDrafter,
    tokens: Int[Tensor, " s"],
    taps: Float[Tensor, "1 s kh"],
    anchors: Int[Tensor, " n"],
    block_size: int,
) -> Int[Tensor, " n"]:
    slots = anchors[:, None] + torch.arange(block_size, device=anchors.device)  # [n, B] absolute positions
    drafted = _drafted(target, drafter, tokens, taps, anchors, slots)
    known = slots[:, 1:] < len(tokens)
    truth = tokens[slots[:, 1:].clamp(max=len(tokens) - 1)]
    return ((drafted == truth) & known).long().cumprod(1).sum(1)


def _drafted(
    target: Target, drafter: DFlashDrafter, tokens: Tensor, taps: Tensor, anchors: Tensor, slots: Tensor
) -> Int[Tensor, "n k"]:
    count, block_size = slots.shape
    like, reach = (
        drafter.fc.weight,
        int(anchors.max()) if count else 0,
    )  # no block sees a state at or behind its anchor
    blocks = torch.full_like(slots, drafter.config.mask_token_id)
    blocks[:, 0] = tokens[anchors]
    keep = torch.ones_like(anchors, dtype=torch.bool)
    positions = torch.cat((torch.arange(reach, device=slots.device), slots.flatten()))
    hidden = drafter(
        target.embed(blocks.flatten()[None]).to(like),
        taps[:, :reach].to(like),
        positions[None].to(like.device),
        build_masks(
            anchors[None].to(like.device), keep[None].to(like.device), reach, block_size, drafter.config
        ),
    )
    return greedy_tokens(hidden.view(count, block_size, -1)[:, 1:].flatten(0, 1), target.head).view(count, -1)
