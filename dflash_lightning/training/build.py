"""Target and drafter from settings: what must be known before a step, and what needs weights.

in    model settings of the YAML, the target's folder
out   DrafterConfig (no weights needed), the drafter with fresh or given weights
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from dflash_lightning.data.store import TokenStore
from dflash_lightning.differing import differing
from dflash_lightning.drafter.config import Causality, DrafterConfig, LayerType
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.formats import load_folder
from dflash_lightning.target.geometry import drafter_config_for
from dflash_lightning.target.loading import Target, load_target
from dflash_lightning.target.mask_token import resolve_mask_token
from dflash_lightning.target.stored.manifest import StatesIdentity


@dataclass(frozen=True, kw_only=True)
class DrafterShape:
    """Shape of the drafter. What is null is taken from the target."""

    num_layers: int = 5
    """Decoder layers of the drafter."""
    num_taps: int | None = None
    """Target layers to tap, evenly spaced; null: as many as the drafter has layers."""
    target_layer_ids: list[int] | None = None
    """Target layers to tap, listed by hand (0-based), instead of num_taps."""
    num_heads: int | None = None
    """Query heads."""
    num_kv_heads: int | None = None
    """Key and value heads."""
    head_dim: int | None = None
    """Channels per head."""
    intermediate_size: int | None = None
    """Width of the SwiGLU layer."""
    layer_types: list[LayerType] | None = None
    """full_attention or sliding_attention for each layer; null: full attention everywhere."""
    sliding_window: int | None = None
    """Context tokens that a sliding layer sees."""
    causal_in_block: Causality = False
    """Layers that hide later slots of the own block: none (false), all (true), or those that slide (sliding).
    Servers read it from the exported config."""


@dataclass(frozen=True, kw_only=True)
class TargetSettings:
    """How the frozen target runs."""

    dtype: Literal["bfloat16", "float32", "float16"] = "bfloat16"
    """Precision of the target's weights and forward pass; serve it in the same one."""
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    """Attention kernel of the target."""
    sharded: bool = False
    """Spread its decoder layers over the ranks of a node (FSDP2): for a target that outgrows a device."""


def drafter_config(
    target_config: Any, tokenizer: Any, shape: DrafterShape, *, block_size: int, mask_token: int | str | None
) -> DrafterConfig:
    """The drafter's config for this target; refuses what cannot fit it. Needs no weights."""
    rows = target_config.vocab_size
    return drafter_config_for(
        target_config,
        block_size=block_size,
        mask_token_id=resolve_mask_token(mask_token, tokenizer, vocab_rows=rows),
        **asdict(shape),
    )


def load_initial_weights(drafter: DFlashDrafter, folder: str) -> None:
    """Start from a published or exported drafter, in either format, instead of from scratch.

    Raises: ValueError when its shape is not the one configured, naming each field that differs, or when its
    tensors are not those its config describes; FileNotFoundError where the folder is none.
    """
    found = load_folder(folder, depth=drafter.config.num_target_layers)
    ours, theirs = _shape_facts(drafter.config), _shape_facts(found.config)
    if lines := differing(theirs, ours, "there", "here"):
        raise ValueError(
            f"model.init_from {folder} holds a drafter of another shape ({'; '.join(lines)}); "
            "set model.drafter, model.block_size and model.mask_token to its values"
        )
    drafter.load_state_dict(dict(found.state))


def build_drafter(config: DrafterConfig, *, init_from: str | None, **options: Any) -> DFlashDrafter:
    """A drafter with fresh weights, or with those in the folder `init_from`; `options` as DFlashDrafter's."""
    drafter = DFlashDrafter(config, **options)
    if init_from:
        load_initial_weights(drafter, init_from)
    return drafter


def build_target(
    name: str, settings: TargetSettings, device: torch.device, *, layers: int | None = None
) -> Target:
    """The frozen target, its weights on `device`; `layers`: as load_target's."""
    dtype = getattr(torch, settings.dtype)
    return load_target(name, dtype=dtype, attention=settings.attention, device=device, layers=layers)


def states_identity(
    digest: str, settings: TargetSettings, taps: Sequence[int], *, final: bool, store: TokenStore
) -> StatesIdentity:
    """Which hidden states a run with these settings needs; what `prepare --hidden-states` writes.
    `digest`: target_digest of the target."""
    return StatesIdentity(
        target=digest,
        dtype=settings.dtype,
        taps=tuple(taps),
        final=final,
        store=store.manifest.digest,
        tokenizer=store.manifest.tokenizer_hash,
        template=store.manifest.template_hash,
    )


def _shape_facts(config: DrafterConfig) -> Mapping[str, Any]:
    unimportant = {"initializer_range", "max_position_embeddings", "bos_token_id", "eos_token_id"}
    return {key: value for key, value in asdict(config).items() if key not in unimportant}
