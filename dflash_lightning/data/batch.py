"""What one rank runs in one micro-step.

law   a ghost row (sample id < 0) repeats a real sample with nothing supervised: no loss, only time
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dflash_lightning.data.split import Split


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
    split: Split = "train"
    """Half of the token store that `sample_ids` are rows of."""

    def to(self, device: torch.device | str, non_blocking: bool = False) -> TokenBatch:
        """The same batch on another device. Lightning calls it: it cannot fill in a frozen dataclass.

        Nothing waits for a copy from pinned memory, though Lightning does not ask for that.
        """
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking or tensor.is_pinned()))

    def pin_memory(self) -> TokenBatch:
        """Called by the DataLoader when it pins."""
        return self._each(Tensor.pin_memory)

    def _each(self, move: Callable[[Tensor], Tensor]) -> TokenBatch:
        moved: dict[str, Any] = {
            field.name: move(value)
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return replace(self, **moved)
