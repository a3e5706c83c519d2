"""What one rank runs in one micro-step.

law   a ghost row (sample id < 0) repeats a real sample with nothing supervised: it costs time and adds no loss
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class TokenBatch:
    """Rows of one bucket, right-padded. b rows, s padded tokens, n anchor slots."""

    input_ids: Int[Tensor, "b s"]
    loss_mask: Bool[Tensor, "b s"]
    """True on tokens that the target wrote: those a drafter would have to draft."""
    lengths: Int[Tensor, " b"]
    """Real tokens per row."""
    anchors: Int[Tensor, "b n"]
    """Sorted positions of the anchors, 0 where `keep` is False."""
    keep: Bool[Tensor, "b n"]
    sample_ids: Int[Tensor, " b"]
    """Row of the token store; bitwise-negated for a ghost."""
    bucket: int

    def to(self, device: torch.device | str, non_blocking: bool = False) -> TokenBatch:
        """The same batch on another device. Lightning calls it, since a frozen dataclass cannot be filled in."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> TokenBatch:
        """Called by the DataLoader when it pins."""
        return self._each(Tensor.pin_memory)

    def _each(self, move: Callable[[Tensor], Tensor]) -> TokenBatch:

        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return TokenBatch(**{k: move(v) if isinstance(v, Tensor) else v for k, v in values.items()})
