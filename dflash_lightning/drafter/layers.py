"""The parts of a drafter layer: norms, projections, attention over [context ; blocks], SwiGLU.

in    block states [b, q, h], fused context [b, c, h], rotary tables for c + q positions, a mask
out   block states [b, q, h]
law   order is project, norm, rotate; context and blocks share k_proj, v_proj and k_norm, and one softmax
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from dflash_lightning.drafter.attention import attend
from dflash_lightning.drafter.cache import LayerCache
from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.drafter.mask import Mask
from dflash_lightning.drafter.rotary import Tables, rotate


class Linear(nn.Linear):
    """No bias, no initialisation of its own: the drafter's reset_parameters does it once, from its seed."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)

    def reset_parameters(self) -> None:
        """Leave the weight to the drafter."""


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis, in x's precision or fp32 if that is lower.

    Answers in x's dtype; under autocast in autocast's, because two or three projections read the result and
    each would round it anew. The residual stream itself is never rounded.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        device = x.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        # On CUDA, autocast makes rms_norm answer in fp32.
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps).to(dtype)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.gate_proj = Linear(config.hidden_size, config.intermediate_size)
        self.up_proj = Linear(config.hidden_size, config.intermediate_size)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Float[Tensor, "b q h"]) -> Float[Tensor, "b q h"]:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class BlockAttention(nn.Module):
    """Queries from the blocks; keys and values from [context ; blocks], one softmax (spec/dflash.md 1.4)."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        hidden, self.head_dim = config.hidden_size, config.head_dim
        self.q_proj = Linear(hidden, config.num_heads * self.head_dim)
        self.k_proj = Linear(hidden, config.num_kv_heads * self.head_dim)
        self.v_proj = Linear(hidden, config.num_kv_heads * self.head_dim)
        self.o_proj = Linear(config.num_heads * self.head_dim, hidden)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps)

    def forward(
        self, x: Tensor, context: Tensor, *, tables: Tables, mask: Mask | None, cache: LayerCache | None
    ) -> Tensor:
        num_context, num_queries = context.shape[1], x.shape[1]
        query_tables = tables[0][:, -num_queries:], tables[1][:, -num_queries:]
        queries = rotate(self.q_norm(self._heads(self.q_proj(x))), query_tables)
        keys = torch.cat((self.k_proj(context), self.k_proj(x)), dim=1)
        keys = rotate(self.k_norm(self._heads(keys)), tables)
        values = self._heads(torch.cat((self.v_proj(context), self.v_proj(x)), dim=1))
        if cache is not None:
            keys, values = cache.extend(keys, values, num_context=num_context)
        out: Tensor = self.o_proj(attend(queries, keys, values, mask))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], -1, self.head_dim)


class DrafterLayer(nn.Module):
    """Pre-norm attention and SwiGLU; the context passes by unchanged and un-normalised."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.self_attn = BlockAttention(config)
        self.mlp = SwiGLU(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self, x: Tensor, context: Tensor, tables: Tables, mask: Mask | None, cache: LayerCache | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), context, tables=tables, mask=mask, cache=cache)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out
