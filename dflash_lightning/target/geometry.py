"""From a target's config to a drafter's: what must match the target, and what merely defaults to it.

in    the target's text config and the user's choices
out   a DrafterConfig
law   hidden size, vocabulary and rope base are the target's; heads and widths may differ (spec/dflash.md 1.4)
"""

from collections.abc import Sequence
from typing import Any

from dflash_lightning.drafter.config import Causality, DrafterConfig, LayerType, tap_layers


def drafter_config_for(
    target_config: Any,
    *,
    num_layers: int,
    block_size: int,
    mask_token_id: int,
    target_layer_ids: Sequence[int] | None = None,
    num_taps: int | None = None,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    intermediate_size: int | None = None,
    layer_types: Sequence[LayerType] | None = None,
    sliding_window: int | None = None,
    causal_in_block: Causality = False,
) -> DrafterConfig:
    """A drafter for `target_config` (a text config); every None takes the target's own value.

    Args:
        num_layers: decoder layers of the drafter.
        target_layer_ids: tapped layers in order; by default `num_taps` layers (one per drafter layer),
            evenly spaced by the formula of spec/dflash.md 1.2.
        layer_types: one kind per drafter layer; full attention by default, whatever the target does.
        sliding_window: of the sliding layers; without one it says nothing about the drafter, and an export
            could not carry it, so it is left out.

    Raises:
        ValueError: the target's config has no rope base, or the choices contradict each other.
    """
    heads = target_config.num_attention_heads
    taps = taps_for(
        target_config, num_layers=num_layers, num_taps=num_taps, target_layer_ids=target_layer_ids
    )
    return DrafterConfig(
        hidden_size=target_config.hidden_size,
        vocab_size=target_config.vocab_size,
        num_layers=num_layers,
        num_heads=num_heads or heads,
        num_kv_heads=num_kv_heads or getattr(target_config, "num_key_value_heads", None) or heads,
        head_dim=head_dim or head_width(target_config),
        intermediate_size=intermediate_size or target_config.intermediate_size,
        block_size=block_size,
        mask_token_id=mask_token_id,
        target_layer_ids=taps,
        num_target_layers=target_config.num_hidden_layers,
        rope_theta=rope_theta(target_config),
        max_position_embeddings=target_config.max_position_embeddings,
        rms_norm_eps=getattr(target_config, "rms_norm_eps", 1e-6),
        layer_types=tuple(layer_types or ()),
        sliding_window=sliding_window if "sliding_attention" in (layer_types or ()) else None,
        causal_in_block=causal_in_block,
        bos_token_id=_first(target_config.bos_token_id),
        eos_token_id=_first(target_config.eos_token_id),
    )


def taps_for(
    target_config: Any, *, num_layers: int, num_taps: int | None, target_layer_ids: Sequence[int] | None
) -> tuple[int, ...]:
    """The layers that are tapped: as listed, else evenly spaced, by default one per drafter layer.

    Raises:
        ValueError: the list has another length than `num_taps`, or the target is too shallow.
    """
    if target_layer_ids is None:
        return tap_layers(target_config.num_hidden_layers, num_taps or num_layers)
    if num_taps not in (None, len(target_layer_ids)):
        raise ValueError(f"num_taps is {num_taps} but target_layer_ids names {len(target_layer_ids)} layers")
    return tuple(target_layer_ids)


def require_fits(config: DrafterConfig, target_config: Any) -> None:
    """Refuse a drafter that was made for another target.

    Raises:
        ValueError: width, vocabulary, depth or rope base differ; all differences are named.
    """
    pairs = {
        "hidden size": (config.hidden_size, target_config.hidden_size),
        "vocabulary": (config.vocab_size, target_config.vocab_size),
        "target layers": (config.num_target_layers, target_config.num_hidden_layers),
        "rope base": (config.rope_theta, rope_theta(target_config)),
    }
    different = [
        f"{name} {ours} against {theirs}" for name, (ours, theirs) in pairs.items() if ours != theirs
    ]
    if different:
        raise ValueError(f"the drafter was made for another target: {', '.join(different)} of this one")


def rope_theta(target_config: Any) -> float:
    """Base of the target's rotary embedding, from `rope_parameters` (transformers 5) or `rope_theta` (4).

    A target that stretches its rope (Llama 3's scaling, YaRN) is fine: the drafter uses the plain rope of
    this base.

    Raises:
        ValueError: neither key is there; a silent default of 10000 would train a drafter that serves badly.
    """
    parameters = getattr(target_config, "rope_parameters", None) or {}
    theta = parameters.get("rope_theta") or getattr(target_config, "rope_theta", None)
    if theta is None:
        raise ValueError(
            f"the config of target {target_config.model_type} has neither rope_parameters.rope_theta nor "
            "rope_theta; add the rope base the target was trained with to its config.json"
        )
    return float(theta)


def head_width(target_config: Any) -> int:
    """Features per attention head; configs without `head_dim` divide the hidden size by the heads."""
    width = getattr(target_config, "head_dim", None)
    return int(width or target_config.hidden_size // target_config.num_attention_heads)


def _first(token_id: int | Sequence[int] | None) -> int | None:
    """Some targets list several ends of text; the exported config has room for one."""
    return token_id[0] if isinstance(token_id, Sequence) else token_id
