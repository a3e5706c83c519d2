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

from dflash_lightning.decoding.rounds import resolve_block_size
from dflash_lightning.decoding.verify import greedy_tokens
from dflash_lightning.drafter.blocks import build_blocks
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
    like = drafter.fc.weight
    tokens = torch.tensor([ids], device=like.device)
    taps = target.tapped_states(tokens.to(target.device), drafter.config.target_layer_ids).taps
    size = resolve_block_size(drafter, block_size)
    anchors = torch.arange(prompt_length, len(ids) - 1, device=like.device)
    streaks: list[int] = []
    for group in torch.split(anchors, anchors_at_once) if len(anchors) else ():
        streaks += _streaks(target, drafter, tokens, taps.to(like), group[None], size).tolist()
    return streaks


def _streaks(
    target: Target,
    drafter: DFlashDrafter,
    tokens: Int[Tensor, "1 s"],
    taps: Float[Tensor, "1 s kh"],
    anchors: Int[Tensor, "1 n"],
    block_size: int,
) -> Int[Tensor, " n"]:
    keep, everywhere = torch.ones_like(anchors, dtype=torch.bool), torch.ones_like(tokens)
    mask_id = drafter.config.mask_token_id
    blocks = build_blocks(tokens, everywhere, anchors, keep, block_size=block_size, mask_token_id=mask_id)
    reach = int(anchors.max())  # no block sees a state at or behind its anchor
    hidden = drafter(
        target.embed(blocks.block_ids.flatten(1).to(target.device)).to(taps),
        taps[:, :reach],
        blocks.with_context(reach),
        build_masks(anchors, keep, reach, block_size, drafter.config),  # dense: lengths differ at every call
    )
    drafted = greedy_tokens(hidden[0].unflatten(0, (-1, block_size))[:, 1:].flatten(0, 1), target.head)
    right = (drafted.view_as(blocks.labels[0]).to(tokens) == blocks.labels[0]) & blocks.supervised[0]
    return right.long().cumprod(1).sum(1)
