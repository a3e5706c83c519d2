"""One row of every rank, on every rank. A collective: all ranks call it, or all wait for ever."""

import torch
from lightning import Trainer
from torch import Tensor


def rows_of_all_ranks(trainer: Trainer, row: Tensor) -> Tensor:
    """[n] of this rank -> [world, n]. A sum, since torch deprecates what Lightning's all_gather calls."""
    rows = row.new_zeros(trainer.world_size, *row.shape)
    rows[trainer.global_rank] = row
    summed = trainer.strategy.reduce(rows, reduce_op="sum")
    assert isinstance(summed, Tensor)
    return summed


def texts_of_all_ranks(trainer: Trainer, text: str) -> list[str]:
    """A text of each rank, of any length; rank 0's first."""
    ours = torch.tensor(list(text.encode()), dtype=torch.int64, device=trainer.strategy.root_device)
    sizes = rows_of_all_ranks(trainer, ours.new_tensor([len(ours)])).flatten().tolist()
    padded = torch.nn.functional.pad(ours, (0, max(sizes) - len(ours)))
    rows = rows_of_all_ranks(trainer, padded).tolist()
    return [bytes(row[:size]).decode() for row, size in zip(rows, sizes, strict=True)]
