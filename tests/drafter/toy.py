"""The drafter of spec/dflash.md section 6, random inputs for it, and a slow obvious reference beside it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dflash_lightning.drafter import BlockMasks, DFlashDrafter, DrafterConfig
from tests.toy import HIDDEN, LAYERS, MASK, VOCAB

BLOCK = 4


def drafter_config(**changes) -> DrafterConfig:
    shape = {
        "hidden_size": HIDDEN,
        "vocab_size": VOCAB,
        "num_layers": 3,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "intermediate_size": 48,
        "block_size": BLOCK,
        "mask_token_id": MASK,
        "target_layer_ids": (1, 3, 5),
        "num_target_layers": LAYERS,
        "rope_theta": 1e4,
        "max_position_embeddings": 512,
        "initializer_range": 0.25,
    }
    return DrafterConfig(**(shape | changes))


def toy_drafter(dtype: torch.dtype = torch.float64, **changes) -> DFlashDrafter:
    drafter = DFlashDrafter(drafter_config(**changes)).to(dtype)
    with torch.no_grad():  # norm weights that are not all 1, so that a forgotten or swapped one shows
        for name, parameter in drafter.named_parameters():
            if "norm" in name:
                parameter.copy_(torch.linspace(0.5, 1.5, len(parameter)).roll(len(name)))
    return drafter


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def run_blocks(
    drafter: DFlashDrafter, slots: Tensor, taps: Tensor, anchors: Sequence[int], **positions
) -> Tensor:
    """One row: slots [n, B, h], taps [S, k*h] -> [n, B, h], all blocks in one masked forward pass."""
    anchor = torch.tensor([list(anchors)])
    masks = drafter.build_masks(anchor, torch.ones_like(anchor, dtype=torch.bool), len(taps))
    where = positions.get("where", block_positions(len(taps), anchors, slots.shape[1]))
    return drafter(slots.flatten(0, 1)[None], taps[None], where[None], masks).view_as(slots)


def block_positions(context: int, anchors: Sequence[int], block_size: int = BLOCK) -> Tensor:
    blocks = torch.tensor(list(anchors))[:, None] + torch.arange(block_size)
    return torch.cat((torch.arange(context), blocks.flatten()))


def one_block(drafter: DFlashDrafter, slots: Tensor, taps: Tensor, anchor: int) -> Tensor:
    """The same block alone, as in decoding: context cut at its anchor, no mask."""
    where = block_positions(anchor, [anchor], len(slots))
    return drafter(slots[None], taps[None, :anchor], where[None], None)[0]


def reference(drafter: DFlashDrafter, slots: Tensor, taps: Tensor, anchor: int) -> Tensor:
    """Spec 1.3 to 1.5 and 1.9 spelled out for one block, head by head, from the state dict."""
    config, weight = drafter.config, drafter.state_dict()

    def norm(x: Tensor, name: str) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + config.rms_norm_eps).sqrt() * weight[f"{name}.weight"]

    def project(x: Tensor, name: str) -> Tensor:
        return x @ weight[f"{name}.weight"].T

    def rope(x: Tensor, position: Tensor) -> Tensor:
        half = config.head_dim // 2
        frequency = torch.tensor([config.rope_theta ** (-2 * i / config.head_dim) for i in range(half)])
        angle = (position[:, None].float() * frequency).to(x.dtype)
        turned = torch.cat((-x[:, half:], x[:, :half]), dim=-1)
        return x * angle.cos().repeat(1, 2) + turned * angle.sin().repeat(1, 2)

    context, where = norm(project(taps[:anchor], "fc"), "hidden_norm"), torch.arange(anchor + len(slots))
    x = slots
    for i in range(config.num_layers):
        layer = f"layers.{i}"
        seen = torch.tensor(lone_block_rows(config, config.layer_types[i], anchor, len(slots)))
        inner = norm(x, f"{layer}.input_layernorm")
        both = torch.cat((context, inner))
        heads = []
        for head in range(config.num_heads):
            group = head // (config.num_heads // config.num_kv_heads)
            mine = slice(head * config.head_dim, (head + 1) * config.head_dim)
            shared = slice(group * config.head_dim, (group + 1) * config.head_dim)
            q = norm(project(inner, f"{layer}.self_attn.q_proj")[:, mine], f"{layer}.self_attn.q_norm")
            k = norm(project(both, f"{layer}.self_attn.k_proj")[:, shared], f"{layer}.self_attn.k_norm")
            v = project(both, f"{layer}.self_attn.v_proj")[:, shared]
            scores = rope(q, where[anchor:]) @ rope(k, where).T / config.head_dim**0.5
            heads.append(scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v)
        x = x + project(torch.cat(heads, dim=-1), f"{layer}.self_attn.o_proj")
        inner = norm(x, f"{layer}.post_attention_layernorm")
        gate = torch.nn.functional.silu(project(inner, f"{layer}.mlp.gate_proj"))
        x = x + project(gate * project(inner, f"{layer}.mlp.up_proj"), f"{layer}.mlp.down_proj")
    return norm(x, "norm")


def lone_block_rows(config: DrafterConfig, layer_type: str, anchor: int, slots: int) -> list[list[bool]]:
    """Position by position: which of [context ; block] each slot of a block at `anchor` sees (spec 1.9)."""
    slides = layer_type == "sliding_attention"
    is_causal = {True: True, False: False, "sliding": slides}[config.causal_in_block]
    rows = []
    for place in range(anchor, anchor + slots):
        context = [not slides or place - other < config.sliding_window for other in range(anchor)]
        block = [not is_causal or other <= place for other in range(anchor, anchor + slots)]
        rows.append(context + block)
    return rows


def dense(masks: BlockMasks, layer_type: str = "full_attention") -> Tensor:
    mask = masks.of(layer_type)
    assert isinstance(mask, Tensor)
    return mask[:, 0].int()
