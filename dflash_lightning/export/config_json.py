"""DrafterConfig <-> the config.json of a z-lab checkpoint.

in    DrafterConfig, or the parsed JSON of a released drafter
out   a JSON dictionary that transformers 4 and 5, z-lab's code and serving engines all read alike
law   reading back what was written gives the same DrafterConfig

Three things are written twice because readers differ (spec/dflash.md 1.9, 1B.2, 1B.3): the rope base
(transformers 4 reads `rope_theta`, 5 reads `rope_parameters`, each falls back to 10000 in silence), the block
size, and causality within a block (`is_causal`, in some versions of vLLM only `dflash_config.causal`).
Where sliding layers alone are causal, neither key is written: that is how readers take their absence.
"""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.export.kinds import causality, layer_kinds, require_plain

FIELD_KEYS = {
    "hidden_size": "hidden_size",
    "vocab_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "intermediate_size": "intermediate_size",
    "num_target_layers": "num_target_layers",
    "max_position_embeddings": "max_position_embeddings",
    "rms_norm_eps": "rms_norm_eps",
}
"""Fields of DrafterConfig that are one key of the JSON each, as they are."""

FIXED = {
    "architectures": ["DFlashDraftModel"],
    # Without it AutoModel would load a plain Qwen3 with random embeddings, and say so in a log line only.
    "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
    "model_type": "qwen3",
    "rope_scaling": None,
    "hidden_act": "silu",
    "attention_bias": False,
    "attention_dropout": 0.0,
    # A true copied from a small target would send some loaders looking for an embedding.
    "tie_word_embeddings": False,
    "use_cache": True,
}
"""What is the same for every drafter of ours."""


def to_json_dict(config: DrafterConfig, *, dtype: str = "bfloat16") -> dict[str, Any]:
    """All keys of spec/dflash.md 1B.1 and 1B.2, and none of the target's that a drafter has no use for."""
    slides, causal = "sliding_attention" in config.layer_types, config.causal_in_block
    return {
        **FIXED,
        **{key: getattr(config, field) for field, key in FIELD_KEYS.items()},
        "block_size": config.block_size,
        "dflash_config": {
            "block_size": config.block_size,
            **({} if causal == "sliding" else {"causal": causal}),
            "mask_token_id": config.mask_token_id,
            "target_layer_ids": list(config.target_layer_ids),
        },
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_theta": config.rope_theta, "rope_type": "default"},
        "layer_types": list(config.layer_types),
        "max_window_layers": config.num_layers,
        "sliding_window": config.sliding_window if slides else None,
        "use_sliding_window": slides,
        **({} if causal == "sliding" else {"is_causal": causal}),
        "initializer_range": config.initializer_range,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
        "dtype": dtype,
        "transformers_version": version("transformers"),
    }


def from_json_dict(raw: Mapping[str, Any], *, source: str) -> DrafterConfig:
    """The drafter a config.json describes, ours or a released one.

    Raises:
        ValueError: a key is missing, two keys contradict each other, or we do not run drafters of this kind.
    """
    found = raw.get("architectures")
    if "DFlashDraftModel" not in (found or ()):
        raise ValueError(f"{source} describes {found}, not a DFlashDraftModel in z-lab's format")
    dflash = _get(raw, "dflash_config", source)
    for key in ("dflash_config", "rope_parameters", "rope_scaling"):
        if not isinstance(raw.get(key) or {}, Mapping):
            raise ValueError(f"{source} has {key} {raw[key]!r}, where an object of keys and values belongs")
    require_plain(raw, dflash, source)
    same = {field: _get(raw, key, source) for field, key in FIELD_KEYS.items()}
    taps = tuple(_get(dflash, "target_layer_ids", f"dflash_config of {source}"))
    kinds, window = layer_kinds(raw, dflash, same["num_layers"], source)
    fields = {
        **same,
        "block_size": _block_size(raw, dflash, source),
        "mask_token_id": _get(dflash, "mask_token_id", f"dflash_config of {source}"),
        "target_layer_ids": taps,
        "allow_last_layer_tap": same["num_target_layers"] - 1 in taps,
        "rope_theta": _rope_theta(raw, source),
        "layer_types": kinds,
        "sliding_window": window,
        "causal_in_block": causality(raw, dflash, source),
        "initializer_range": raw.get("initializer_range", 0.02),
        "bos_token_id": raw.get("bos_token_id"),
        "eos_token_id": raw.get("eos_token_id"),
    }
    try:
        return DrafterConfig(**fields)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def _block_size(raw: Mapping[str, Any], dflash: Mapping[str, Any], source: str) -> int:
    found = {"block_size": raw.get("block_size"), "dflash_config.block_size": dflash.get("block_size")}
    size: int = _agreed(found, source)
    return size


def _rope_theta(raw: Mapping[str, Any], source: str) -> float:
    parameters = raw.get("rope_parameters") or {}
    found = {
        "rope_theta": raw.get("rope_theta"),
        "rope_parameters.rope_theta": parameters.get("rope_theta"),
    }
    return float(_agreed(found, source))


def _agreed(candidates: Mapping[str, Any], source: str) -> Any:
    """The one value that all keys that are present give."""
    given = {key: value for key, value in candidates.items() if value is not None}
    if not given:
        raise ValueError(f"{source} has no {' or '.join(candidates)}")
    if len(set(given.values())) > 1:
        stated = ", ".join(f"{key} {value}" for key, value in given.items())
        raise ValueError(f"{source} contradicts itself: {stated}")
    return next(iter(given.values()))


def _get(raw: Mapping[str, Any], key: str, source: str) -> Any:
    if raw.get(key) is None:
        raise ValueError(f"{source} has no {key}")
    return raw[key]
