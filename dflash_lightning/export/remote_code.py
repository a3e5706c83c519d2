"""The drafter for plain transformers, 4.57 and 5: `export --remote-code` copies this file beside the weights.

in    noise_embedding [b, q, h]: the target's embedding of anchor, MASK, MASK, ...; target_hidden [b, c, k*h]:
      the tapped hidden states of the c context positions; position_ids [b, c+q]
out   hidden states [b, q, h] after the drafter's own norm; logits are the target's lm_head of them
law   needs torch and transformers only, and computes what the trainer's drafter computes, operation by
      operation; angles are fp32 in a module of any dtype

With a DynamicCache, target_hidden and position_ids cover the new context and the block; the caller crops the
block from the cache afterwards.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel, Qwen3Config


class DFlashDraftModel(PreTrainedModel):  # type: ignore[misc]  # transformers ships no types
    config_class = Qwen3Config
    _no_split_modules = ["DFlashLayer"]
    _supports_sdpa = True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        dflash = config.dflash_config
        self.target_layer_ids: list[int] = list(dflash["target_layer_ids"])
        self.mask_token_id: int = dflash["mask_token_id"]
        self.block_size: int = dflash.get("block_size") or config.block_size
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.layers = nn.ModuleList(DFlashLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = RMSNorm(hidden, eps)
        self.fc = nn.Linear(len(self.target_layer_ids) * hidden, hidden, bias=False)
        self.hidden_norm = RMSNorm(hidden, eps)
        self.post_init()

    def forward(
        self,
        noise_embedding: Tensor,
        target_hidden: Tensor,
        position_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        **_: Any,
    ) -> Tensor:
        context = self.hidden_norm(self.fc(target_hidden))
        tables = rotary_tables(position_ids, self.config)
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        num_context, slots = past + context.shape[1], noise_embedding.shape[1]
        x = noise_embedding
        for layer, kind in zip(self.layers, self.config.layer_types, strict=True):
            mask = attention_mask
            if mask is None:
                mask = lone_block_mask(self.config, kind, num_context, slots, x.device)
            x = layer(x, context, tables, mask, past_key_values)
        out: Tensor = self.norm(x)
        return out


class DFlashLayer(nn.Module):
    def __init__(self, config: Any, index: int) -> None:
        super().__init__()
        self.self_attn = BlockAttention(config, index)
        self.mlp = SwiGLU(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, context: Tensor, tables: Any, mask: Tensor | None, cache: Any) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), context, tables, mask, cache)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class BlockAttention(nn.Module):
    """Queries from the block; keys and values from [context ; block]."""

    def __init__(self, config: Any, index: int) -> None:
        super().__init__()
        hidden, self.head_dim, self.index = config.hidden_size, config.head_dim, index
        queries, keys = config.num_attention_heads, config.num_key_value_heads
        self.q_proj = nn.Linear(hidden, queries * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, keys * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, keys * self.head_dim, bias=False)
        self.o_proj = nn.Linear(queries * self.head_dim, hidden, bias=False)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.grouped = queries != keys

    def forward(self, x: Tensor, context: Tensor, tables: Any, mask: Tensor | None, cache: Any) -> Tensor:
        slots = x.shape[1]
        queries = rotate(self.q_norm(self._heads(self.q_proj(x))), [table[:, -slots:] for table in tables])
        keys = self._heads(torch.cat((self.k_proj(context), self.k_proj(x)), dim=1))
        keys = rotate(self.k_norm(keys), tables).transpose(1, 2)
        values = self._heads(torch.cat((self.v_proj(context), self.v_proj(x)), dim=1)).transpose(1, 2)
        if cache is not None:
            keys, values = cache.update(keys, values, self.index)
        attended = F.scaled_dot_product_attention(
            queries.transpose(1, 2), keys, values, attn_mask=mask, enable_gqa=self.grouped
        )
        out: Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], -1, self.head_dim)


class SwiGLU(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def lone_block_mask(config: Any, kind: str, num_context: int, slots: int, device: Any) -> Tensor | None:
    """Visible [slots, num_context + slots] for one block right behind its context; None if everything is.

    A config that says neither is_causal nor dflash_config.causal means: sliding layers are causal within the
    block, full ones are not.
    """
    slides, causal = kind == "sliding_attention", getattr(config, "is_causal", None)
    if causal is None:
        causal = config.dflash_config.get("causal")
    if not slides and not causal:
        return None
    slot = torch.arange(slots, device=device)[:, None]
    key = torch.arange(num_context + slots, device=device)
    in_block = key >= num_context
    visible = torch.ones_like(in_block).expand(slots, -1)
    if slides:
        visible = in_block | (num_context + slot - key < config.sliding_window)
    if causal or causal is None:
        visible = visible & (~in_block | (key - num_context <= slot))
    return visible


def rotary_tables(positions: Tensor, config: Any) -> list[Tensor]:
    """cos and sin of position * theta^(-2i/d), each [b, l, 1, d/2] in fp32."""
    parameters = getattr(config, "rope_parameters", None) or {}  # transformers 5; 4 has rope_theta
    theta = parameters.get("rope_theta") or config.rope_theta
    pair = torch.arange(0, config.head_dim, 2, device=positions.device).float()
    angles = positions[:, :, None, None].float() * (1.0 / (theta ** (pair / config.head_dim)))
    return [angles.cos(), angles.sin()]


def rotate(heads: Tensor, tables: list[Tensor]) -> Tensor:
    """NeoX layout: the first half of the channels turns against the second."""
    cos, sin = (table.to(heads.dtype) for table in tables)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
