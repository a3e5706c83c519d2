"""From anchors to blocks: what each slot is fed, where it sits, what it should say.

in    token ids and loss mask [b, S], anchors and keep [b, n]
out   Blocks: ids and positions [b, n, B], labels and supervised [b, n, B-1]
law   slot k of anchor a sits at a + k and is supervised by the token AT a + k; slot 0 is given, never trained
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class Blocks:
    """The blocks of one batch. Slots 1..B-1 have labels, so those tensors are one shorter."""

    block_ids: Int[Tensor, "b n slots"]
    """The anchor's token, then mask tokens; mask tokens only in a block that is not kept."""
    positions: Int[Tensor, "b n slots"]
    """anchor + slot; may reach past the sequence."""
    labels: Int[Tensor, "b n slots-1"]
    """Token at the slot's position; past the sequence the last token stands in, unsupervised."""
    supervised: Bool[Tensor, "b n slots-1"]
    """Kept, inside the sequence, and produced by the assistant."""

    def with_context(self, context_length: int) -> Int[Tensor, "b all"]:
        """Positions of [context ; blocks], as the drafter's forward takes them: [b, context_length + n*B]."""
        context = torch.arange(context_length, device=self.positions.device)
        return torch.cat((context.expand(len(self.positions), -1), self.positions.flatten(1)), dim=1)


def build_blocks(
    input_ids: Int[Tensor, "b s"],
    loss_mask: Bool[Tensor, "b s"] | Int[Tensor, "b s"],
    anchors: Int[Tensor, "b n"],
    keep: Bool[Tensor, "b n"],
    *,
    block_size: int,
    mask_token_id: int,
    lengths: Int[Tensor, " b"] | None = None,
) -> Blocks:
    """Blocks of `block_size` slots at the anchors. Source: spec/dflash.md 2.2 and 2.6.

    `lengths` are the real tokens of each row; without them the whole row counts, which is the same wherever
    padding has loss mask 0. The mask is per label: a hole in it does not stop later slots.
    """
    rows, width = input_ids.shape
    slot = torch.arange(block_size, device=anchors.device)
    positions = anchors[:, :, None] + slot
    first = torch.where(keep, input_ids.gather(1, anchors), mask_token_id)
    block_ids = torch.full_like(positions, mask_token_id)
    block_ids[:, :, 0] = first

    drafted = positions[:, :, 1:]
    inside = drafted < (width if lengths is None else lengths[:, None, None])
    flat = drafted.clamp(max=width - 1).flatten(1)
    labels = input_ids.gather(1, flat).view_as(drafted)
    trained = loss_mask.gather(1, flat).view_as(drafted).bool()
    return Blocks(block_ids, positions, labels, trained & inside & keep[:, :, None])
