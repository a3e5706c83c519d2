"""Sums of made-up micro-batches, for everything that watches the loss by bucket."""

from collections.abc import Sequence

from dflash_lightning.training.window_sums import Sums

Micro = tuple[int, float, float]
"""(bucket, mean loss, weight)"""


def step_of(micro_batches: Sequence[Micro], num_buckets: int) -> list[Sums]:
    """Sums by bucket of one optimizer step."""
    sums = [Sums() for _ in range(num_buckets)]
    for bucket, loss, weight in micro_batches:
        sums[bucket] += Sums(
            loss=loss * weight,
            weight=weight,
            correct=1.0,
            supervised=4.0,
            streak=1.0,
            blocks=2.0,
            micro_batches=1.0,
            micro_loss=loss,
            micro_square=loss**2,
        )
    return sums
