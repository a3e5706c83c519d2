"""Writes and reads drafters in the format of vLLM's `speculators` (spec/dflash.md 1B.4; package 0.9.0).

in    DrafterConfig, state dict, target; or a folder
out   a folder that `vllm serve FOLDER` and the package load; or config and state dict
law   the tensors are those of z-lab's format, bit for bit; layer ids count boundaries there, so id + 1; from
      one format to the other and back gives the same config and the same tensors

The package leaves embedding and head of an unpruned vocabulary to the target, and so do we; in a folder that
carries copies of them, they are not read. `num_target_layers` is a key of ours: the format has no depth.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.export.config_json import from_json_dict, to_json_dict
from dflash_lightning.export.files import CONFIG_NAME, read_config, read_weights, require_floats
from dflash_lightning.export.names import require_shapes
from dflash_lightning.export.rounding import name_of, rounded
from dflash_lightning.export.target import TargetFacts
from dflash_lightning.export.write_files import write_folder

NOT_TRANSFORMER = (
    "architectures",
    "auto_map",
    "block_size",
    "dflash_config",
    "num_target_layers",
    "is_causal",
    "dtype",
    "transformers_version",
)
"""Keys of z-lab's config that are not the decoder's; the rest is `transformer_layer_config`."""
OF_THE_TARGET = (
    "embed_tokens.weight",
    "lm_head.weight",
    "verifier_lm_head.weight",
    "verifier_norm.weight",
    "t2d",
    "d2t",
)
"""Tensors that the format may carry and that belong to the target."""


def to_speculators_json(
    config: DrafterConfig, target: TargetFacts, *, dtype: str = "bfloat16"
) -> dict[str, Any]:
    """Raises: ValueError where the format cannot say what this drafter does."""
    _require_expressible(config)
    decoder = {k: v for k, v in to_json_dict(config, dtype=dtype).items() if k not in NOT_TRANSFORMER}
    greedy = {"proposal_type": "greedy", "speculative_tokens": config.block_size - 1}
    return {
        "architectures": ["DFlashSpeculator"],
        "speculators_model_type": "dflash",
        "speculators_version": "0.9.0",
        "speculators_config": {
            "algorithm": "dflash",
            "proposal_methods": [greedy],
            "default_proposal_method": "greedy",
            "verifier": {"name_or_path": target.name, "architectures": list(target.architectures)},
        },
        "transformer_layer_config": decoder,
        "draft_vocab_size": config.vocab_size,
        "target_hidden_size": None,
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "aux_hidden_state_layer_ids": [tap + 1 for tap in config.target_layer_ids],
        "sample_from_anchor": False,
        "sliding_window_non_causal": "sliding_attention" in config.layer_types and not config.causal_in_block,
        "num_target_layers": config.num_target_layers,
        "tie_word_embeddings": False,
        "dtype": dtype,
    }


def from_speculators_json(raw: Mapping[str, Any], *, source: str, depth: int | None = None) -> DrafterConfig:
    """The drafter such a config.json describes.

    Args:
        depth: layers of the target, for configs that do not have `num_target_layers`.

    Raises:
        ValueError: another kind of speculator, a missing key, or a drafter of a kind that we do not run.
    """
    decoder = raw.get("transformer_layer_config") or {}
    _require_kind(raw, decoder, source)
    taps = raw.get("aux_hidden_state_layer_ids")
    if not taps or min(taps) < 1:
        raise ValueError(
            f"{source} has aux_hidden_state_layer_ids {taps}; a list of boundaries from 1 on is needed (the "
            "embedding's output, 0, is no tap here)"
        )
    layers = raw.get("num_target_layers") or depth
    if layers is None:
        raise ValueError(
            f"{source} does not say how many layers the target has: give --target a folder here, or one in "
            "the hub's cache"
        )
    zlab = {
        **decoder,
        "architectures": ["DFlashDraftModel"],
        "num_target_layers": layers,
        "block_size": raw.get("block_size", 8),  # the default of the package's class
        "dflash_config": {
            "target_layer_ids": [tap - 1 for tap in taps],
            "mask_token_id": raw.get("mask_token_id"),
        },
        # full layers never are there; None is z-lab's word for that
        "is_causal": False if raw.get("sliding_window_non_causal") else None,
    }
    return from_json_dict(zlab, source=source)


def export_speculators(
    config: DrafterConfig,
    state: Mapping[str, Tensor],
    folder: str | Path,
    *,
    target: TargetFacts,
    dtype: torch.dtype | None = torch.bfloat16,
    extras: Mapping[str, str] | None = None,
) -> Path:
    """As export_zlab, in this format; `target` is the model that `vllm serve FOLDER` starts."""
    require_shapes(state, config, source="the state dict")
    tensors = rounded(state, dtype)
    described = to_speculators_json(config, target, dtype=name_of(tensors["fc.weight"].dtype))
    return write_folder(Path(folder), tensors, described, extras or {})


def load_speculators(
    folder: str | Path, *, depth: int | None = None
) -> tuple[DrafterConfig, dict[str, Tensor]]:
    """As load_zlab, from this format; `depth` as in from_speculators_json."""
    folder = Path(folder)
    config = from_speculators_json(read_config(folder), source=str(folder / CONFIG_NAME), depth=depth)
    state = {name: t for name, t in read_weights(folder).items() if name not in OF_THE_TARGET}
    require_shapes(state, config, source=str(folder))
    require_floats(state, source=str(folder))
    return config, state


def target_of(raw: Mapping[str, Any]) -> str | None:
    """The target that a config of this format names."""
    name = ((raw.get("speculators_config") or {}).get("verifier") or {}).get("name_or_path")
    return str(name) if name else None


def _require_expressible(config: DrafterConfig) -> None:
    if config.is_causal("full_attention") and "full_attention" in config.layer_types:
        raise ValueError(
            "in speculators' format full-attention layers see their whole block, but this drafter was "
            "trained with causal_in_block true; export it with --format zlab"
        )
    if config.num_target_layers - 1 in config.target_layer_ids:
        raise ValueError(
            f"speculators' format has no tap on the target's last layer, {config.num_target_layers - 1}; "
            "export the drafter with --format zlab"
        )


def _require_kind(raw: Mapping[str, Any], decoder: Mapping[str, Any], source: str) -> None:
    kind = raw.get("speculators_model_type")
    if kind != "dflash":
        raise ValueError(f"{source} describes a speculator of type {kind!r}; only 'dflash' is supported")
    if not decoder:
        raise ValueError(f"{source} has no transformer_layer_config")
    pruned, rows = raw.get("draft_vocab_size"), decoder.get("vocab_size")
    if pruned not in (None, rows):
        raise ValueError(
            f"{source} has a pruned vocabulary (draft_vocab_size {pruned}, the target's {rows}): such a "
            "drafter needs a head of its own, and only drafters that borrow the target's are supported"
        )
    width, hidden = raw.get("target_hidden_size"), decoder.get("hidden_size")
    if width not in (None, hidden):
        raise ValueError(f"{source} has target_hidden_size {width}, but the drafter is {hidden} wide")
    if raw.get("sample_from_anchor"):
        raise ValueError(f"{source} has sample_from_anchor, which is DSpark's rule and not DFlash's")
