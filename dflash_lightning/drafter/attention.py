"""Attention over [context ; blocks], through torch's own kernels.

in    queries [b, q, heads, d], keys and values [b, m, kv_heads, d], a mask or None (everything visible)
out   [b, q, heads * d]
law   the mask's type picks the kernel: dense bool Tensor or None goes to sdpa, BlockMask to flex_attention
"""

from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from dflash_lightning.drafter.mask import Mask


def attend(
    queries: Float[Tensor, "b q heads d"],
    keys: Float[Tensor, "b m kv_heads d"],
    values: Float[Tensor, "b m kv_heads d"],
    mask: Mask | None,
) -> Float[Tensor, "b q heads*d"]:
    """Grouped-query attention with scale d^-0.5. On CPU flex has no backward."""
    grouped = queries.shape[2] != keys.shape[2]
    q, k, v = queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
    if isinstance(mask, BlockMask):
        flex = _compiled_flex() if q.device.type == "cuda" else _flex
        out = flex(q, k, v, mask, grouped)
    else:
        # is_causal stays False with mask None: a lone block sees all of the context and of itself.
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)
    return out.transpose(1, 2).flatten(2)


def _flex(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask, grouped: bool) -> Tensor:
    out: Tensor = flex_attention(q, k, v, block_mask=mask, enable_gqa=grouped)
    return out


@cache
def _compiled_flex() -> Callable[[Tensor, Tensor, Tensor, BlockMask, bool], Tensor]:
    return torch.compile(_flex)
