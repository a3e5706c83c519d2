"""One row of every rank, on every rank. A collective: all ranks call it, or all wait for ever."""

from lightning import Trainer
from torch import Tensor


def rows_of_all_ranks(trainer: Trainer, row: Tensor) -> Tensor:
    """[n] of this rank -> [world, n]. A sum, since torch deprecates what Lightning's all_gather calls."""
    rows = row.new_zeros(trainer.world_size, *row.shape)
    rows[trainer.global_rank] = row
    summed = trainer.strategy.reduce(rows, reduce_op="sum")
    assert isinstance(summed, Tensor)
    return summed
