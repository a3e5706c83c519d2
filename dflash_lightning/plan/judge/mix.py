"""How well one optimizer window, and one tenth of the epoch, stands for the whole.

in    labels [N]: the bucket of each batch, in order; batches per window
out   MixFacts
law   the distance of a full window is never below the floor, and an order of one bucket has none

Distances are total variation: half the sum over buckets of |share in the window - share in the epoch|, that
is, the share of the window's batches that ought to come from another bucket (spec/batching.md section 2.3).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dflash_lightning.plan.samples import IntArray

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class MixFacts:
    """The bucket mix of parts of an epoch against the whole. Windows are full ones, unless there is none."""

    tv_mean: float
    """Distance of a window's mix to the epoch's, on average."""
    tv_max: float
    """The same of the worst window."""
    tv_floor: float
    """The least distance that a window of whole batches can have."""
    single_bucket_share: float
    """Share of the windows that hold one bucket only."""
    single_bucket_estimate: float
    """The same if batches were drawn at random from equal buckets, as many as hold batches."""
    tenths: tuple[tuple[float, ...], ...]
    """Share of each bucket in each tenth of the epoch; all zero in a tenth without batches."""
    drift: float
    """The largest |share in a tenth - share in the epoch|."""
    lag: float
    """The most batches by which a bucket is ever ahead of its share, or behind it."""


def window_counts(labels: IntArray, num_buckets: int, window_batches: int) -> IntArray:
    """[N] labels -> [windows, buckets] batches of each; the last window may be a short one."""
    windows = -(-len(labels) // window_batches)
    cell = np.arange(len(labels)) // window_batches * num_buckets + labels
    return np.bincount(cell, minlength=windows * num_buckets).reshape(windows, num_buckets)


def judge_mix(labels: IntArray, num_buckets: int, window_batches: int) -> MixFacts:
    """The facts of at least one batch's labels."""
    counts = np.bincount(labels, minlength=num_buckets)
    share = counts / len(labels)
    size = min(window_batches, len(labels))  # an epoch shorter than a window is one window
    windows = window_counts(labels, num_buckets, size)[: len(labels) // size]
    distance = 0.5 * np.abs(windows / size - share).sum(axis=1)
    tenths = [np.bincount(part, minlength=num_buckets) / max(1, len(part)) for part in _tenths(labels)]
    return MixFacts(
        tv_mean=float(distance.mean()),
        tv_max=float(distance.max()),
        tv_floor=_floor(counts, size),
        single_bucket_share=float((windows.max(axis=1) == size).mean()),
        single_bucket_estimate=float(np.count_nonzero(counts)) ** (1 - size),
        tenths=tuple(tuple(tenth.tolist()) for tenth in tenths),
        drift=max(float(np.abs(tenth - share).max()) for tenth in tenths if tenth.any()),
        lag=_lag(labels, share),
    )


def _tenths(labels: IntArray) -> list[IntArray]:
    return np.array_split(labels, 10)


def _floor(counts: IntArray, size: int) -> float:
    """Shares in whole batches by largest remainders: no other whole numbers come nearer."""
    whole, remainder = np.divmod(counts * size, counts.sum())
    whole[np.argsort(-remainder, kind="stable")[: size - whole.sum()]] += 1
    return 0.5 * float(np.abs(whole / size - counts / counts.sum()).sum())


def _lag(labels: IntArray, share: FloatArray) -> float:
    due = np.arange(1, len(labels) + 1)
    return max(
        float(np.abs(np.cumsum(labels == bucket) - due * share[bucket]).max()) for bucket in range(len(share))
    )
