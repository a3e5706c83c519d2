"""Attention masks that a Hugging Face model takes as they are: one for each kind of layer it has.

in    which keys each query may see, and where queries and keys stand
out   what goes in as the body's `attention_mask`
law   a layer with a sliding window sees no further back than in a plain forward pass
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Visible = Bool[Tensor, "b q keys"]
MASKED_KERNELS = frozenset({"sdpa", "eager"})


def model_masks(
    config: Any,
    visible: Visible,
    query_positions: Int[Tensor, "b q"],
    key_positions: Int[Tensor, "b keys"],
    *,
    dtype: torch.dtype,
) -> Any:
    """The mask of the model's layers, or a dict of them by kind where kinds differ.

    Args:
        config: text config of the target.
        visible: True where a query may see a key, as far as a layer without a window is concerned.
        dtype: the target's; a hidden key gets the least number of it.

    Raises:
        ValueError: the model's attention kernel or one of its kinds of layers takes no mask of this form.
    """
    kinds = layer_kinds(config)
    _require_masked_kernel(config)
    distance = query_positions[:, :, None] - key_positions[:, None, :]
    masks = {kind: additive(_seen(kind, config, visible, distance), dtype) for kind in kinds}
    return masks if len(masks) > 1 else masks[kinds[0]]


def layer_kinds(config: Any) -> list[str]:
    """The kinds of attention the target has, each once; older configs say it by `sliding_window` alone."""
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return sorted(set(kinds))
    return ["sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"]


def additive(visible: Visible, dtype: torch.dtype) -> Float[Tensor, "b 1 q keys"]:
    """0 where visible, else the least number of the dtype: eager and SDPA add it to their scores."""
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill_(~visible, torch.finfo(dtype).min)[:, None]


def _seen(kind: str, config: Any, visible: Visible, distance: Int[Tensor, "b q keys"]) -> Visible:
    if kind == "full_attention":
        return visible
    if kind == "sliding_attention":
        window: int = config.sliding_window
        return visible & (distance < window)
    raise ValueError(
        f"target {config.model_type} has layers of kind {kind}; verifying a tree or several prompts at once "
        "needs full or sliding attention in all layers, so decode with chains, one prompt at a time"
    )


def _require_masked_kernel(config: Any) -> None:
    kernel = getattr(config, "_attn_implementation", "eager")
    if kernel not in MASKED_KERNELS:
        raise ValueError(
            f"the target's attention kernel is {kernel}, which takes no mask of one's own; verifying a tree "
            "or several prompts at once needs sdpa or eager, so load the target with one of these"
        )
