"""Names and shapes of the tensors in a z-lab checkpoint, from the config alone.

in    DrafterConfig
out   name -> shape, 3 + 11 per layer (spec/dflash.md 1B.1)
law   the drafter's own parameters have exactly these names, so export renames nothing
"""

from collections.abc import Mapping

from torch import Tensor

from dflash_lightning.drafter.config import DrafterConfig


def expected_shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint and its shape; no embedding, head or rotary table among them."""
    hidden, taps = config.hidden_size, len(config.target_layer_ids)
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, taps * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    for index in range(config.num_layers):
        shapes |= {f"layers.{index}.{name}.weight": shape for name, shape in _layer_shapes(config).items()}
    return shapes


def require_shapes(state: Mapping[str, Tensor], config: DrafterConfig, *, source: str) -> None:
    """Refuse a state dict that is not exactly this drafter's.

    Raises:
        ValueError: tensors are missing, unknown, or of another shape; all of them are named.
    """
    expected = expected_shapes(config)
    found = {name: tuple(tensor.shape) for name, tensor in state.items()}
    faults = [f"missing {name}" for name in sorted(expected.keys() - found.keys())]
    faults += [f"unknown {name}{_hint(name)}" for name in sorted(found.keys() - expected.keys())]
    faults += [
        f"{name} is {list(found[name])} where the config says {list(expected[name])}"
        for name in sorted(expected.keys() & found.keys())
        if found[name] != expected[name]
    ]
    if faults:
        raise ValueError(f"{source} does not hold the drafter its config describes: " + "; ".join(faults))


def _hint(name: str) -> str:
    """It may have been trained along, or be another target's: to read past it could be wrong."""
    borrowed = name.endswith(("embed_tokens.weight", "lm_head.weight"))
    return ": z-lab's format borrows it from the target, take it out of the file" if borrowed else ""


def _layer_shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner, width = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_heads * width, config.num_kv_heads * width
    return {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "self_attn.q_norm": (width,),
        "self_attn.k_norm": (width,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
