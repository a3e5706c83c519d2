"""Finds the parts of a Hugging Face causal LM that the drafter reads or borrows.

in    any causal LM built like Llama: `model.embed_tokens`, `model.layers`, `model.norm`, and a bias-free head
out   DecoderParts(body, layers, norm, embed, head): the model's own modules and weights, never copies
law   a model with another anatomy is refused by the name of the part that is missing
"""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

CROPPABLE_LAYERS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})


@dataclass(frozen=True)
class DecoderParts:
    """Views into one target."""

    body: nn.Module
    """Embedding, decoder layers and final norm, without the head."""
    layers: nn.ModuleList
    """The decoder layers in order; tap id i is the output of `layers[i]`."""
    norm: nn.Module
    """The final norm. The drafter never sees its output; distillation does."""
    embed: nn.Embedding
    """Input embedding [V, H], a raw table lookup."""
    head: Float[Tensor, "v h"]
    """Output projection. The very tensor of `embed` when the target ties them."""


def text_config(config: Any) -> Any:
    """The language model's own config, which multi-modal targets nest inside another."""
    return config.get_text_config(decoder=True)


def find_parts(model: nn.Module) -> DecoderParts:
    """The parts of `model`, all of them or an error.

    Raises:
        ValueError: a part is missing, or is of a kind that training with a borrowed embedding and head
            would get wrong (a scaled embedding, a head with a bias).
    """
    body = _decoder_body(model)
    layers, norm, embed = (_part(model, body, name) for name in ("layers", "norm", "embed_tokens"))
    if not isinstance(layers, nn.ModuleList) or len(layers) == 0:
        raise ValueError(f"{_name(model)} has no list of decoder layers at `model.layers`; {_SUPPORTED}")
    if (
        type(embed) is not nn.Embedding
    ):  # a subclass may scale its rows (Gemma), which z-lab's format does not
        raise ValueError(
            f"{_name(model)} embeds tokens with {type(embed).__name__}, not a plain table; {_SUPPORTED}"
        )
    return DecoderParts(body=body, layers=layers, norm=norm, embed=embed, head=_head_weight(model))


def require_croppable(config: Any) -> None:
    """Refuse a target whose cache cannot forget rejected tokens: recurrent state has no positions to cut off.

    Raises:
        ValueError: a layer is of a kind other than attention (spec/dflash.md 4.4.3, last point).
    """
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    recurrent = sorted({kind for kind in kinds if kind not in CROPPABLE_LAYERS})
    if recurrent:
        raise ValueError(
            f"target {config.model_type} has layers of kind {', '.join(recurrent)}; draft-and-verify "
            "decoding must take back rejected tokens, which only attention layers can do, so decode with a "
            "target that has attention layers only"
        )


_SUPPORTED = "targets must be built like Llama, Qwen2, Qwen3 or Mistral"


def _decoder_body(model: nn.Module) -> nn.Module:
    body = getattr(model, "model", None)
    nested = getattr(body, "language_model", None)  # multi-modal wrappers put the decoder one level deeper
    if nested is not None:
        body = nested
    if not isinstance(body, nn.Module):
        raise ValueError(f"{_name(model)} has no decoder at `model`; {_SUPPORTED}")
    return body


def _part(model: nn.Module, body: nn.Module, name: str) -> nn.Module:
    part = getattr(body, name, None)
    if not isinstance(part, nn.Module):
        raise ValueError(f"{_name(model)} has no `model.{name}`; {_SUPPORTED}")
    return part


def _head_weight(model: Any) -> Tensor:
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if not isinstance(head, nn.Linear):
        raise ValueError(f"{_name(model)} has no linear output head; {_SUPPORTED}")
    if head.bias is not None:
        raise ValueError(
            f"{_name(model)} has a bias in its output head, which the z-lab format has no room for"
        )
    return head.weight


def _name(model: nn.Module) -> str:
    return type(model).__name__
