"""What a drafter is: its shape, its taps, its block.

in    numbers from YAML or from an exported config.json
out   DrafterConfig, refused when inconsistent; tap_layers(depth, count), the default taps
law   every field that decides the drafter's function is here; nothing is read from the target later
"""

from dataclasses import dataclass
from typing import Literal, get_args

LayerType = Literal["full_attention", "sliding_attention"]
Causality = bool | Literal["sliding"]
"""Which layers hide later slots of the own block: none, all, or the sliding ones."""


def tap_layers(depth: int, count: int) -> tuple[int, ...]:
    """The default taps: `count` decoder layers of a target with `depth` layers, evenly from 1 to depth - 3.

    Ids are 0-based layer indices; the feature is that layer's output. Ties round half to EVEN, as released
    checkpoints do (depth 30, five taps: 20.5 becomes 20). Source: spec/dflash.md 1.2.

    Raises:
        ValueError: if the target is too shallow, so that ids would repeat or fall outside it.
    """
    if count < 1:
        raise ValueError(f"a drafter needs at least one tap, got {count}")
    if count == 1:
        ids: tuple[int, ...] = (depth // 2,)
    else:
        ids = tuple(round(1 + i * (depth - 4) / (count - 1)) for i in range(count))
    if depth < 1 or list(ids) != sorted(set(ids)):
        raise ValueError(
            f"a target of {depth} layers has no {count} evenly spaced taps (the formula gives {list(ids)}); "
            "ask for fewer taps, or list the layers in target_layer_ids"
        )
    return ids


@dataclass(frozen=True, kw_only=True)
class DrafterConfig:
    """Shape of a drafter, in the terms of the z-lab checkpoint format (spec/dflash.md 1B.1)."""

    hidden_size: int
    """Width of drafter and target: the drafter borrows the target's embedding and head."""
    vocab_size: int
    """Rows of the target's embedding table."""
    num_layers: int
    """Decoder layers of the drafter."""
    num_heads: int
    """Query heads; need not match the target."""
    num_kv_heads: int
    """Key and value heads; divides num_heads."""
    head_dim: int
    """Channels per head; even, because rotary embedding turns pairs."""
    intermediate_size: int
    """Width of the SwiGLU layer."""
    block_size: int
    """Slots of a block, the anchor included: a block drafts block_size - 1 tokens."""
    mask_token_id: int
    """Id fed at masked slots: a row of the target's embedding that ordinary text never uses."""
    target_layer_ids: tuple[int, ...]
    """Tapped decoder layers of the target (0-based), in the order of the column blocks of fc.weight."""
    num_target_layers: int
    """Depth of the target."""
    rope_theta: float
    """Base of the rotary embedding; the target's own."""
    max_position_embeddings: int
    """Longest sequence the drafter is meant for; written to the export, not enforced here."""
    rms_norm_eps: float = 1e-6
    """Added to the mean square in every RMSNorm."""
    initializer_range: float = 0.02
    """Standard deviation of fresh projection weights."""
    layer_types: tuple[str, ...] = ()
    """One of full_attention, sliding_attention per layer; empty means full attention everywhere."""
    sliding_window: int | None = None
    """Window W of the sliding layers: slot at position p sees context positions j with p - j < W."""
    causal_in_block: bool | str = False
    """True hides later slots of the own block in EVERY layer, "sliding" in the sliding ones; DFlash: False.
    Where all layers are of one kind, "sliding" becomes what it comes to: True if they slide, else False."""
    allow_last_layer_tap: bool = False
    """Implementations differ on the last layer's output (before or after the final norm): a tap there is
    refused unless this is set."""
    bos_token_id: int | None = None
    """Copied to the export."""
    eos_token_id: int | None = None
    """Copied to the export."""

    def __post_init__(self) -> None:
        if not self.layer_types:
            object.__setattr__(self, "layer_types", ("full_attention",) * self.num_layers)
        _check_shape(self)
        _check_taps(self)
        _check_layer_types(self)
        _check_causality(self)
        if self.causal_in_block == "sliding" and len(set(self.layer_types)) == 1:
            object.__setattr__(self, "causal_in_block", self.layer_types[0] == "sliding_attention")

    def is_causal(self, layer_type: str) -> bool:
        """True if layers of this type hide later slots of the own block."""
        if self.causal_in_block == "sliding":
            return layer_type == "sliding_attention"
        return self.causal_in_block is True

    @property
    def sees_all_context(self) -> bool:
        """True if a lone block needs no mask: every layer sees the whole context and the whole block."""
        return not self.causal_in_block and "sliding_attention" not in self.layer_types


def _check_shape(config: DrafterConfig) -> None:
    sizes = (
        "hidden_size",
        "vocab_size",
        "num_layers",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "intermediate_size",
    )
    for name in (*sizes, "num_target_layers", "rope_theta", "max_position_embeddings"):
        if getattr(config, name) <= 0:
            raise ValueError(f"{name} must be positive, got {getattr(config, name)}")
    if config.num_heads % config.num_kv_heads:
        raise ValueError(
            f"num_heads ({config.num_heads}) must be a multiple of num_kv_heads ({config.num_kv_heads})"
        )
    if config.head_dim % 2:
        raise ValueError(f"head_dim must be even for rotary embedding, got {config.head_dim}")
    require_block_size(config.block_size)
    if not 0 <= config.mask_token_id < config.vocab_size:
        raise ValueError(
            f"mask_token_id {config.mask_token_id} is not a row of the target's embedding table "
            f"({config.vocab_size} rows); choose an unused or reserved id below that"
        )


def _check_taps(config: DrafterConfig) -> None:
    taps, depth = config.target_layer_ids, config.num_target_layers
    if not taps:
        raise ValueError("target_layer_ids is empty; list the tapped layers, or use tap_layers(depth, count)")
    if len(set(taps)) != len(taps):
        raise ValueError(f"target_layer_ids must not repeat a layer, got {list(taps)}")
    if min(taps) < 0 or max(taps) >= depth:
        raise ValueError(
            f"target_layer_ids {list(taps)} must lie in 0..{depth - 1} (the target has {depth} layers)"
        )
    if depth - 1 in taps and not config.allow_last_layer_tap:
        raise ValueError(
            f"target_layer_ids {list(taps)} taps the last layer ({depth - 1}), whose output some engines "
            "read after the final norm; tap an earlier layer, or set allow_last_layer_tap"
        )


def _check_layer_types(config: DrafterConfig) -> None:
    if len(config.layer_types) != config.num_layers:
        raise ValueError(
            f"layer_types must name every layer: got {len(config.layer_types)} for {config.num_layers} layers"
        )
    unknown = set(config.layer_types) - set(get_args(LayerType))
    if unknown:
        raise ValueError(f"layer_types must be among {list(get_args(LayerType))}, got {sorted(unknown)}")
    if "sliding_attention" in config.layer_types and (config.sliding_window or 0) < 1:
        raise ValueError(
            f"sliding_attention layers need a positive sliding_window, got {config.sliding_window}"
        )


def _check_causality(config: DrafterConfig) -> None:
    if not isinstance(config.causal_in_block, bool) and config.causal_in_block != "sliding":
        raise ValueError(f"causal_in_block must be false, true or sliding, got {config.causal_in_block!r}")


def require_block_size(block_size: int) -> None:
    """Raises ValueError for a block that drafts nothing."""
    if block_size < 2:
        raise ValueError(f"block_size counts the anchor, so it must be at least 2, got {block_size}")
