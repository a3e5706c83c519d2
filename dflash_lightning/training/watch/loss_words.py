"""Sentences about the loss: an alarm while it happens, and what moved the curve when an epoch ends."""

from collections.abc import Sequence

from dflash_lightning.training.watch.loss_bands import Excursion
from dflash_lightning.training.watch.mix_split import RawMovement

MOSTLY = 0.5
"""From this share on the curve's movement is called mix."""


def range_of(bucket: int, edges: Sequence[int]) -> str:
    """As "bucket 2 (145 to 208 tokens)"; `edges` are inclusive upper bounds."""
    return f"bucket {bucket} ({edges[bucket - 1] + 1 if bucket else 1} to {edges[bucket]} tokens)"


def alarm(excursion: Excursion, edges: Sequence[int], loss: float) -> str:
    """When an excursion has become one."""
    return (
        f"loss of {range_of(excursion.bucket, edges)} is {loss:.4g} at step {excursion.last}, above its band "
        f"({excursion.low:.4g} to {excursion.high:.4g}), for {excursion.lasted} of its steps in a row, since "
        f"step {excursion.since}"
    )


def all_clear(excursion: Excursion, edges: Sequence[int], step: int) -> str:
    """When the loss is back, with how long it was away."""
    return (
        f"loss of {range_of(excursion.bucket, edges)} is back in its band at step {step}: it was above for "
        f"{excursion.lasted} of its steps, {excursion.since} to {excursion.last}, "
        f"at most {excursion.highest:.4g}"
    )


def epoch_words(
    movement: RawMovement | None,
    excursions: Sequence[Excursion],
    skipped: int,
    edges: Sequence[int],
    *,
    without_band: int = 0,
) -> str:
    """Whether the movement of the raw curve, one point a micro-batch, is mix or instability.

    `excursions`: those of the epoch; `skipped`: its steps without a finite gradient; `without_band`: buckets
    with too few steps to have one.
    """
    if excursions or skipped:
        return f"instability: {_what_went_wrong(excursions, skipped, edges)}. {_share(movement)}"
    bands = "No bucket left its band."
    if without_band:
        bands = f"{without_band} of {len(edges)} buckets had too few steps for a band; no other left its own."
    if movement is None:
        return f"{bands[0].lower()}{bands[1:]} {_share(movement)}"
    if movement.share >= MOSTLY:
        return f"mix{', no instability' * (not without_band)}: {_share(movement, start=False)} {bands}"
    neither = "neither mix nor instability, but" if not without_band else "no mix, but"
    return f"{neither} noise and learning within the buckets: {_share(movement, start=False)} {bands}"


def _share(movement: RawMovement | None, *, start: bool = True) -> str:
    if movement is None:
        return "There were too few micro-batches to say what moves the raw loss curve."
    of = "Of" if start else "of"
    return (
        f"{of} the variance of the raw loss curve (standard deviation {movement.deviation:.3g} between "
        f"micro-batches) {100 * movement.share:.0f} % is which bucket a micro-batch came from."
    )


def _what_went_wrong(excursions: Sequence[Excursion], skipped: int, edges: Sequence[int]) -> str:
    parts = []
    if excursions:
        worst = max(excursions, key=lambda excursion: excursion.lasted)
        more = f" ({len(excursions) - 1} shorter excursions besides)" if len(excursions) > 1 else ""
        parts.append(
            f"{range_of(worst.bucket, edges)} was above its band for {worst.lasted} of its steps, "
            f"{worst.since} to {worst.last}, at most {worst.highest:.4g}{more}"
        )
    if skipped:
        parts.append(f"{skipped} steps had no finite gradient and were skipped")
    return "; ".join(parts)
