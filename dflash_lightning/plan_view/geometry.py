"""The widths that memory depends on, read from the target's config file: no weights, no network.

in    ModelSettings
out   Geometry, or the reason why it is unknown
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_lightning.plan_view.model_settings import ModelSettings


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Drafter and target in numbers. `_width` counts values of one position, `_parameters` weights."""

    hidden: int
    taps: int
    """Tapped layers of the target."""
    vocabulary: int
    layers: int
    """Layers of the drafter."""
    query_width: int
    """Heads x channels of the drafter."""
    key_width: int
    """Key and value heads x channels of the drafter."""
    intermediate: int
    """Width of the drafter's SwiGLU."""
    target_intermediate: int
    drafter_parameters: int
    target_parameters: int
    """Of a target built like Llama; mixtures of experts have more."""
    target_layer_parameters: int
    """Of one decoder layer."""
    target_depth: int
    """Decoder layers of the target."""


def read_geometry(settings: ModelSettings, *, block_size: int) -> Geometry | str:
    """The geometry, or one sentence that says why it cannot be told here."""
    try:
        return geometry_of(local_config(settings.target), settings, block_size=block_size)
    except OSError:
        return (
            f"unknown: target {settings.target} is no folder here with a config.json, and no earlier run "
            "has left one; nothing is downloaded for an estimate"
        )
    except (ValueError, AttributeError) as error:
        return f"unknown: no drafter fits target {settings.target} ({error})"


def local_config(target: str) -> Any:
    """The text config in the target's folder, or what an earlier download left in the cache."""
    from transformers import AutoConfig  # takes seconds to import

    from dflash_lightning.target.layers import text_config

    return text_config(AutoConfig.from_pretrained(local_folder(target), local_files_only=True))


def local_folder(target: str) -> str:
    """The embedded target's folder is made by its first use, which is not the plan's to start."""
    from dflash_lightning.target.embedded import EMBEDDED, GGUF_SHA256, cache_root

    if target != EMBEDDED or Path(target).exists():
        return target
    found = sorted(cache_root().glob(f"{EMBEDDED}-{GGUF_SHA256[:8]}-*"))
    if not found:
        raise FileNotFoundError(f"{EMBEDDED} has not been used yet: there is no folder of it")
    return str(found[-1])


def geometry_of(target: Any, settings: ModelSettings, *, block_size: int) -> Geometry:
    """`target` is a text config of Transformers. Raises ValueError where the drafter cannot fit it."""
    from dflash_lightning.drafter.config import DrafterConfig
    from dflash_lightning.target.geometry import drafter_config_for

    # The mask token changes no size, and finding it needs the tokenizer.
    drafter: DrafterConfig = drafter_config_for(
        target, block_size=block_size, mask_token_id=0, **settings.shape
    )
    return Geometry(
        hidden=drafter.hidden_size,
        taps=len(drafter.target_layer_ids),
        vocabulary=drafter.vocab_size,
        layers=drafter.num_layers,
        query_width=drafter.num_heads * drafter.head_dim,
        key_width=drafter.num_kv_heads * drafter.head_dim,
        intermediate=drafter.intermediate_size,
        target_intermediate=target.intermediate_size,
        drafter_parameters=drafter_parameters(drafter),
        target_parameters=target_parameters(target),
        target_layer_parameters=target_layer_parameters(target),
        target_depth=target.num_hidden_layers,
    )


def drafter_parameters(config: Any) -> int:
    """Weights of a drafter: the fused projection of the taps, the layers, the norms."""
    hidden, heads = config.hidden_size, config.head_dim * config.num_heads
    keys = config.head_dim * config.num_kv_heads
    attention = 2 * hidden * heads + 2 * hidden * keys + 2 * config.head_dim
    layer = attention + 3 * hidden * config.intermediate_size + 2 * hidden
    return int(len(config.target_layer_ids) * hidden * hidden + config.num_layers * layer + 2 * hidden)


def target_parameters(config: Any) -> int:
    """Weights of a Llama-like target: embedding, head unless tied, layers; norms are left out."""
    tables = 1 if config.tie_word_embeddings else 2
    layers = config.num_hidden_layers * target_layer_parameters(config)
    return int(tables * config.vocab_size * config.hidden_size + layers)


def target_layer_parameters(config: Any) -> int:
    """Weights of one decoder layer of a Llama-like target."""
    from dflash_lightning.target.geometry import head_width

    heads = head_width(config) * config.num_attention_heads
    keys = head_width(config) * (getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
    return int(config.hidden_size * (2 * heads + 2 * keys + 3 * config.intermediate_size))
