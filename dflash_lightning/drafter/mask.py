"""Who sees whom: the one predicate behind dense and flex attention masks.

in    anchors [b, n], keep [b, n], context length S, block size B
out   BlockMasks: one mask per layer type over queries n*B and keys S + n*B
law   a slot sees the context strictly before its anchor, and its own block; nothing of any other block
      (context at the anchor would give the answer away: the target's state there has almost decided a + 1)
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal, no_type_check

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from dflash_lightning.drafter.config import DrafterConfig, LayerType

Attention = Literal["sdpa", "flex"]
Mask = Tensor | BlockMask
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class BlockMasks:
    """The mask of each layer type; None where the drafter has no such layer (or where all is visible)."""

    full: Mask | None = None
    sliding: Mask | None = None

    def of(self, layer_type: str) -> Mask | None:
        return self.full if layer_type == "full_attention" else self.sliding


def visible(
    anchors: Int[Tensor, "b n"],
    keep: Bool[Tensor, "b n"],
    *,
    context_length: int,
    block_size: int,
    window: int | None = None,
    causal_in_block: bool = False,
) -> MaskMod:
    """The predicate (row, head, query, key) -> bool of spec/dflash.md 2.3, for index tensors that broadcast.

    Query q is slot q % B of block q // B; key m is context position m below S, else slot (m - S) % B of block
    (m - S) // B. `window` adds the sliding rule (slot's position) - m < window to the context (spec 1.9).
    A block that is not kept sees itself and no context, so that no softmax runs over an empty row.
    """

    @no_type_check  # torch traces this function and counts its parameters: no runtime checker may wrap it
    def mask_mod(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        block, slot = query // block_size, query % block_size
        key_block, key_slot = (key - context_length) // block_size, (key - context_length) % block_size
        anchor = anchors[row, block]
        in_context = (key < context_length) & (key < anchor) & keep[row, block]
        if window is not None:
            in_context = in_context & (anchor + slot - key < window)
        in_block = (key >= context_length) & (key_block == block)
        if causal_in_block:
            in_block = in_block & (key_slot <= slot)
        return in_context | in_block

    rule: MaskMod = mask_mod
    return rule


def build_masks(
    anchors: Int[Tensor, "b n"],
    keep: Bool[Tensor, "b n"],
    context_length: int,
    block_size: int,
    config: DrafterConfig,
    *,
    attention: Attention = "sdpa",
) -> BlockMasks:
    """The masks of one forward pass: dense bool [b, 1, n*B, S + n*B] for sdpa, BlockMask for flex.

    Built once per step and shared by the layers of a type. Never reuse them in another step: anchors change.
    """

    def build(layer_type: LayerType) -> Mask | None:
        if layer_type not in config.layer_types:
            return None
        mask_mod = visible(
            anchors,
            keep,
            context_length=context_length,
            block_size=block_size,
            window=config.sliding_window if layer_type == "sliding_attention" else None,
            causal_in_block=config.is_causal(layer_type),
        )
        rows, queries = anchors.shape[0], anchors.shape[1] * block_size
        materialise = dense_mask if attention == "sdpa" else flex_mask
        return materialise(mask_mod, rows, queries, context_length + queries, anchors.device)

    return BlockMasks(full=build("full_attention"), sliding=build("sliding_attention"))


def dense_mask(
    mask_mod: MaskMod, rows: int, queries: int, keys: int, device: torch.device
) -> Bool[Tensor, "{rows} 1 {queries} {keys}"]:
    """The predicate on the whole index grid; only its bool results are of full size."""
    row = torch.arange(rows, device=device)[:, None, None, None]
    query = torch.arange(queries, device=device)[None, None, :, None]
    key = torch.arange(keys, device=device)
    return mask_mod(row, torch.zeros_like(row), query, key)


def flex_mask(mask_mod: MaskMod, rows: int, queries: int, keys: int, device: torch.device) -> BlockMask:
    """The predicate as a BlockMask, one for all heads."""
    create = _compiled_create() if device.type == "cuda" else create_block_mask
    return create(mask_mod, rows, None, queries, keys, device=device)


@cache
def _compiled_create() -> Callable[..., BlockMask]:
    # Uncompiled, it materialises the whole index grid in int64: 7 GB at 8,192 queries.
    return torch.compile(create_block_mask)
