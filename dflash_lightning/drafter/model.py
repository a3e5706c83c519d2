"""The drafter: one forward pass fills the masked slots of many blocks.

in    block embeddings [b, q, h] (q = blocks x slots), taps [b, c, k*h], positions [b, c+q], masks
out   hidden states [b, q, h] after the drafter's own final norm; logits = target's head of them
law   context gives keys and values only, through the same projections as the blocks; parameter names are
      those of the z-lab format, so that export copies them; embedding and head stay with the target
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dflash_lightning.drafter.cache import DrafterCache
from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.drafter.layers import DrafterLayer, Linear, RMSNorm
from dflash_lightning.drafter.mask import Attention, BlockMasks, build_masks
from dflash_lightning.drafter.rotary import rotary_tables


class DFlashDrafter(nn.Module):
    """A Qwen3-style block-diffusion decoder, conditioned on the target through taps. Spec/dflash.md 1.

    `attention` names the kernel that build_masks prepares for. On the meta device no weight is initialised.
    """

    def __init__(
        self,
        config: DrafterConfig,
        *,
        attention: Attention = "sdpa",
        activation_checkpointing: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        self.attention: Attention = attention
        self.activation_checkpointing = activation_checkpointing
        self.layers = nn.ModuleList(DrafterLayer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.fc = Linear(len(config.target_layer_ids) * config.hidden_size, config.hidden_size)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        if not self.fc.weight.is_meta:
            self.reset_parameters(seed)

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Fresh weights: projections N(0, initializer_range), norms 1. Touches no global random state."""
        generator = torch.Generator(device=self.fc.weight.device).manual_seed(seed)
        for parameter in self.parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, self.config.initializer_range, generator=generator)

    def build_masks(
        self, anchors: Int[Tensor, "b n"], keep: Bool[Tensor, "b n"], context_length: int
    ) -> BlockMasks:
        """Masks for this drafter's layers, block size and attention kernel."""
        return build_masks(
            anchors, keep, context_length, self.config.block_size, self.config, attention=self.attention
        )

    def forward(
        self,
        block_embeddings: Float[Tensor, "b q h"],
        taps: Float[Tensor, "b c kh"],
        positions: Int[Tensor, "b c+q"],
        masks: BlockMasks | None,
        cache: DrafterCache | None = None,
    ) -> Float[Tensor, "b q h"]:
        """Hidden state of every slot; slot k's is the distribution of the token AT its position.

        With a cache, `taps` and `positions` cover the new context only (from cache.length) and the block.
        `masks` None means one block behind all of its context, as in decoding.
        """
        context = self.hidden_norm(self.fc(taps))
        tables = rotary_tables(positions, head_dim=self.config.head_dim, theta=self.config.rope_theta)
        if masks is None:
            num_context = taps.shape[1] + (cache.length if cache is not None else 0)
            masks = self._lone_block_masks(num_context, block_embeddings)
        x = block_embeddings
        for i, layer in enumerate(self.layers):
            mask = masks.of(self.config.layer_types[i])
            layer_cache = cache.layers[i] if cache is not None else None
            if self.activation_checkpointing and torch.is_grad_enabled():
                x = checkpoint(layer, x, context, tables, mask, layer_cache, use_reentrant=False)
            else:
                x = layer(x, context, tables, mask, layer_cache)
        out: Tensor = self.norm(x)
        return out

    def _lone_block_masks(self, num_context: int, block: Tensor) -> BlockMasks:
        """Sliding and causal layers need a mask even for a lone block; others see everything."""
        if self.config.sees_all_context:
            return BlockMasks()
        anchors = torch.full((1, 1), num_context, device=block.device)
        return build_masks(
            anchors, torch.ones_like(anchors, dtype=torch.bool), num_context, block.shape[1], self.config
        )
