"""Rotary position embedding, NeoX layout (first half of the channels turns against the second half).

in    positions [b, l], channels of a head, base theta
out   tables cos, sin [b, l, 1, d/2] in fp32, and heads turned by them
law   angles are fp32 whatever the module's dtype: in bf16 they are wrong by 3.5 rad at position 3,000
      (nothing is stored in the module, so that no cast and no DDP buffer broadcast can touch the frequencies)
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

Tables = tuple[Tensor, Tensor]


def rotary_tables(positions: Int[Tensor, "b l"], *, head_dim: int, theta: float) -> Tables:
    """cos and sin of position * theta^(-2i/d), each [b, l, 1, d/2] fp32. Source: spec/dflash.md 1.4."""
    pair = torch.arange(0, head_dim, 2, device=positions.device).float()
    frequencies = 1.0 / (theta ** (pair / head_dim))
    angles = positions[:, :, None, None].float() * frequencies
    return angles.cos(), angles.sin()


def rotate(heads: Float[Tensor, "b l n d"], tables: Tables) -> Float[Tensor, "b l n d"]:
    """Turn every head by its position's angles; the tables are rounded to the heads' dtype first."""
    cos, sin = (table.to(heads.dtype) for table in tables)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
