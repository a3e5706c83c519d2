"""Which drafters of a config.json we run, and which ones only look like them.

in    the parsed JSON of a released drafter, and its dflash_config
out   layer kinds, window and in-block causality; or an error
law   a key that would change what the drafter computes is understood or refused by name, never read past
      (spec/dflash.md 1.6, 1.9, 1B.2)
"""

from collections.abc import Mapping
from typing import Any

from dflash_lightning.drafter.config import Causality

_SUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "partial_rotary_factor": (1,),
    "input_embedding_scale": (1,),
    "output_multiplier": (1,),
    "final_logit_softcapping": (0,),
}
"""Key -> the values that mean a plain drafter; a key that is absent or null means the same."""


def require_plain(raw: Mapping[str, Any], dflash: Mapping[str, Any], source: str) -> None:
    """Refuse what `drafter/` does not compute.

    Raises:
        ValueError: another activation, biases, another rope than the plain one, scaled embeddings or logits.
    """
    ropes = {key: raw.get(key) or {} for key in ("rope_parameters", "rope_scaling")}
    places = {"": raw, "dflash_config.": dflash, **{f"{key}.": rope for key, rope in ropes.items()}}
    for place, values in places.items():
        for key, plain in _SUPPORTED.items():
            if values.get(key) is not None and values[key] not in plain:
                raise ValueError(
                    f"{source} has {place}{key} {values[key]!r}; only drafters with {key} {plain[0]!r} are "
                    "supported"
                )
    for key, rope in ropes.items():
        kind = rope.get("rope_type") or rope.get("type") or "default"
        if kind != "default" or any(isinstance(part, Mapping) for part in rope.values()):
            raise ValueError(
                f"{source} has {key} {dict(rope)!r}; only drafters with the plain rope are supported (type "
                "'default', one rope_theta for all layers)"
            )


def layer_kinds(
    raw: Mapping[str, Any], dflash: Mapping[str, Any], num_layers: int, source: str
) -> tuple[tuple[str, ...], int | None]:
    """(kind of each layer, window of the sliding ones). `use_swa` makes every layer slide.

    Raises:
        ValueError: layers slide, and two windows are stated.
    """
    windows = (dflash.get("swa_window_size"), raw.get("sliding_window"))
    window = windows[0] or windows[1]
    kinds = tuple(raw.get("layer_types") or ())
    if dflash.get("use_swa"):
        kinds = ("sliding_attention",) * num_layers
    if not kinds:  # as transformers' Qwen3Config fills it in
        first = raw.get("max_window_layers", 28) if raw.get("use_sliding_window") and window else num_layers
        kinds = tuple("sliding_attention" if i >= first else "full_attention" for i in range(num_layers))
    if "sliding_attention" not in kinds:
        return kinds, None
    if all(windows) and windows[0] != windows[1]:
        raise ValueError(
            f"{source} contradicts itself: dflash_config.swa_window_size {windows[0]}, sliding_window "
            f"{windows[1]}"
        )
    return kinds, window


def causality(raw: Mapping[str, Any], dflash: Mapping[str, Any], source: str) -> Causality:
    """From `is_causal` or `dflash_config.causal`; where a release says neither, its sliding layers are
    causal within a block and its full layers are not, as in z-lab's newer code, SGLang and vLLM.

    Raises:
        ValueError: both are there and differ.
    """
    given = {"is_causal": raw.get("is_causal"), "dflash_config.causal": dflash.get("causal")}
    stated = {key: bool(value) for key, value in given.items() if value is not None}
    if len(set(stated.values())) == 2:
        words = ", ".join(f"{key} {value}" for key, value in stated.items())
        raise ValueError(f"{source} contradicts itself: {words}; servers differ in which one they read")
    return next(iter(stated.values())) if stated else "sliding"
