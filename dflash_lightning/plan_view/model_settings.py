"""What of the model decides memory: the target's name, the drafter's shape, precisions and kernels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """As in the `model` section of the YAML; nothing is opened yet."""

    target: str
    """Folder or name of the target."""
    shape: Mapping[str, Any] = field(default_factory=lambda: {"num_layers": 5})
    """The drafter's shape: fields of `model.drafter`."""
    target_bytes: int = 2
    """Bytes of one value of the target: 2 for bfloat16."""
    target_ranks: int = 1
    """Ranks that hold the target's layers together (model.target_settings.sharded)."""
    compute_bytes: int = 2
    """Bytes of one value inside the drafter's layers: 2 under bf16-mixed, 4 under 32-true."""
    dense_mask: bool = True
    """attention: sdpa. False for flex, which needs no mask of full size."""
    activation_checkpointing: bool = False
    head_chunk: int = 2048
    """Positions whose logits exist at a time."""
    fixed_slots: bool = False
    """Every row has num_anchors slots (data.anchor_slots: fixed), not as many as the batch's fullest row."""
