"""A training state of a given size: parameters of a drafter with their Adam moments, fp32.

in    bytes
out   State; `dump` gives the dictionary that a trainer would save: storages of the run itself, no copy
"""

import math
from typing import Any

import torch
from torch import Tensor

from dflash_lightning.checkpoint.snapshots.freezing import ALIGNMENT
from dflash_lightning.drafter import DFlashDrafter, DrafterConfig

LAYERS, TAPS, HEAD = 2, 2, 64
_SQUARES = 11 * LAYERS + TAPS
"""Parameters of such a drafter, in squares of its width. Few layers, so that most tensors are as large as
in a drafter for a target of 8 B: malloc takes memory above 32 MB from the system anew each time."""


def drafter_of(width: int, layers: int = LAYERS, taps: int = TAPS) -> DrafterConfig:
    return DrafterConfig(
        hidden_size=width,
        vocab_size=1024,
        num_layers=layers,
        num_heads=width // HEAD,
        num_kv_heads=1,
        head_dim=HEAD,
        intermediate_size=3 * width,
        block_size=16,
        mask_token_id=0,
        target_layer_ids=tuple(range(1, taps + 1)),
        num_target_layers=4 * taps,
        rope_theta=1e6,
        max_position_embeddings=8192,
    )


class State:
    """Of about `num_bytes` (whole heads), with moments that were updated once."""

    def __init__(self, num_bytes: int) -> None:
        width = HEAD * max(1, round(math.sqrt(num_bytes / 12 / _SQUARES) / HEAD))
        self.drafter = DFlashDrafter(drafter_of(width), seed=0)
        self.optimizer = torch.optim.AdamW(self.drafter.parameters(), lr=1e-4, foreach=False)
        for parameter in self.drafter.parameters():
            parameter.grad = torch.randn_like(parameter)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    @property
    def tensors(self) -> list[Tensor]:
        moments = self.optimizer.state.values()
        found = [parameter.detach() for parameter in self.drafter.parameters()]
        return found + [value for entry in moments for value in entry.values()]

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    def dump(self, step: int) -> dict[str, Any]:
        return {
            "epoch": 0,
            "global_step": step,
            "state_dict": self.drafter.state_dict(),
            "optimizer_states": [self.optimizer.state_dict()],
            "lr_schedulers": [{"last_epoch": step, "base_lrs": [1e-4]}],
            "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"current": {"completed": 0}}}},
        }


class Memcpy:
    """The floor: the same bytes, tensor by tensor, into one buffer that was touched before. Each begins at a
    multiple of 64 bytes, as ours do: unaligned copies take a tenth longer."""

    def __init__(self, state: State) -> None:
        self._sources = state.tensors
        sizes = [source.nbytes for source in self._sources]
        room = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
        spans = torch.ones(sum(room), dtype=torch.uint8).split(room)
        self._targets = [span[:size] for span, size in zip(spans, sizes, strict=True)]

    def __call__(self) -> None:
        for source, target in zip(self._sources, self._targets, strict=True):
            target.copy_(source.reshape(-1).view(torch.uint8))
