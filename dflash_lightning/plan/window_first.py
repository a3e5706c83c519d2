"""WindowFirst: every optimizer window an honest sample of the dataset.

in    all samples in one hashed order
out   batches in the order of the epoch: windows of exactly `window_batches`, the last one as it comes
law   the samples of a window are the next ones of the hashed order, whatever their lengths
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dflash_lightning.plan import rng
from dflash_lightning.plan.batches import sort_pools
from dflash_lightning.plan.cut import Limits, cut_sorted
from dflash_lightning.plan.packing import Measured, Packed, Packing, concatenate, ragged_indices
from dflash_lightning.plan.samples import IntArray, Integers


@dataclass(frozen=True, kw_only=True)
class WindowFirst(Packing):
    """Fill one optimizer window after the other with shuffled samples, sorted by length inside it.

    A window takes as many of the next samples as a sorted cut turns into `window_batches` batches. That count
    never falls when a sample is added: taking a sample out of a cut leaves legal batches, since the limits
    are hereditary, and the sorted cut is the shortest. So a binary search finds the last fitting sample.
    Padding efficiency on the documented mix is .73 / .85 / .96 / .99 with windows of 4 / 8 / 32 / 128
    (spec/batching.md section 3).
    """

    decides_order: ClassVar[bool] = True

    window_batches: int
    """Batches of a window: accumulate_grad_batches times world size of the run that it is meant for."""

    def __post_init__(self) -> None:
        if self.window_batches < 1:
            raise ValueError(f"window_batches must be at least 1, got {self.window_batches}")

    def pack_all(self, measured: Measured, limits: Limits, *, seed: int, epoch: int) -> Packed:
        ids = measured.everyone(seed=seed, epoch=epoch)
        padded, blocks = measured.padded[ids], measured.charged_blocks(ids)
        windows: list[Packed] = []
        start, guess = 0, self.window_batches * limits.typical_rows(padded, blocks)
        while start < len(ids):
            window = self._fill(padded[start:], blocks[start:], guess, limits)
            key = rng.key(seed, epoch, "inside window", len(windows))
            windows.append(_shuffled(Packed(ids[start + window.turn], window.rows), key))
            start, guess = start + len(window.turn), len(window.turn)
        return concatenate(windows)

    def _fill(self, padded: Integers, blocks: IntArray, guess: int, limits: Limits) -> Packed:
        """All samples that are left -> positions of the next window's, longest batch first."""
        reach = guess + guess // 4 + 1
        while True:
            candidates = _Candidates(padded[:reach], blocks[:reach], limits)
            if len(candidates.cut(reach).rows) > self.window_batches:
                break
            if reach >= len(padded):
                return candidates.cut(reach)  # the last window
            reach *= 2
        counts = range(reach + 1)
        first_too_many = bisect_right(counts, self.window_batches, key=lambda n: len(candidates.cut(n).rows))
        window = candidates.cut(first_too_many - 1)
        # One sample more may have made two batches more, itself alone between the halves of another one.
        return window if len(window.rows) == self.window_batches else _halve_largest(window)


class _Candidates:
    """The next samples, sorted once: any number of first ones is cut without sorting again."""

    def __init__(self, padded: Integers, blocks: IntArray, limits: Limits) -> None:
        self._turn = sort_pools(padded, len(padded))
        self._padded, self._blocks = padded[self._turn], blocks[self._turn]
        self._limits = limits

    def cut(self, count: int) -> Packed:
        """The first `count` samples, longest first -> batches."""
        taken = self._turn < count
        starts = cut_sorted(self._padded[taken], self._blocks[taken], count, self._limits)
        turn = self._turn[taken]
        return Packed(turn, np.diff(starts, append=len(turn)))


def _halve_largest(window: Packed) -> Packed:
    at = int(window.rows.argmax())
    rows = int(window.rows[at])
    halves = [rows - rows // 2, rows // 2]
    return Packed(window.turn, np.concatenate((window.rows[:at], halves, window.rows[at + 1 :])))


def _shuffled(window: Packed, key: int) -> Packed:
    """The same batches in hashed order."""
    order = rng.permutation(key, np.arange(len(window.rows)))
    starts = np.cumsum(window.rows) - window.rows
    return Packed(window.turn[ragged_indices(starts[order], window.rows[order])], window.rows[order])
