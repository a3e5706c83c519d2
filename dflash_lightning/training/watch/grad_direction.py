"""Do consecutive gradients point the same way, and how much of them is noise?

in    sketches of the gradients of two consecutive windows (watch/projection.py), weight of each window
out   cosine; gradient noise scale
law   E<g1, g2> = |G|^2 and E|g1 - g2|^2 = tr(S) (1/W1 + 1/W2) for windows of loss weight W1 and W2 drawn at
      the same weights, where G is the true gradient and S its covariance for one unit of weight: both sides
      are unbiased, and the noise scale is the ratio of their running sums, tr(S) / |G|^2

That is B_simple of McCandlish et al. 2018 (arXiv:1812.06162, appendix A.1) with one window as the small batch
and two as the large one. Its unit is loss weight: a window of this much weight has as much noise as signal.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dflash_lightning.training.watch.projection import cosine, products


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One window's gradient, before clipping."""

    step: int
    """Optimizer step, counted from 1."""
    sketch: Tensor
    """[width], of the raw gradient."""
    scale: float
    """Turns it into the gradient of the mean loss."""
    weight: float
    """Loss weight of the window, over all ranks."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What two windows say."""

    cosine: float
    signal: float
    """Estimates |G|^2."""
    noise: float
    """Estimates tr(S)."""


def compare(first: Snapshot, second: Snapshot) -> Pair:
    """Two gradients of consecutive windows; the weights have moved by one step in between."""
    here = second.sketch.device  # the first may come from a checkpoint
    across, one, other = products(first.sketch.to(here), second.sketch)
    signal = first.scale * second.scale * across
    apart = first.scale**2 * one + second.scale**2 * other - 2 * signal
    length = math.sqrt(one * other)
    return Pair(
        cosine=across / length if length else math.nan,
        signal=signal,
        noise=apart / (1 / first.weight + 1 / second.weight),
    )


class MicroSketches:
    """Gradients of single micro-batches, as differences of the sketches of what accumulates."""

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._last: Tensor | None = None
        self.cosines: list[float] = []

    def add(self, accumulated: Tensor) -> None:
        """`accumulated`: the sketch [width] of all micro-batches of this window so far."""
        own = accumulated if self._sum is None else accumulated - self._sum
        if self._last is not None:
            self.cosines.append(cosine(self._last, own))
        self._sum, self._last = accumulated, own


@dataclass
class DirectionTotals:
    """Pairs since the last log, and the running sums behind the noise scale."""

    running_pairs: int
    pairs: int = 0
    total: float = 0.0
    lowest: float = math.inf
    micro_pairs: float = 0.0
    micro_total: float = 0.0
    signal: float = 0.0
    noise: float = 0.0

    def add(self, pair: Pair) -> None:
        """A pair with a zero gradient, which has no direction, is left out."""
        if math.isnan(pair.cosine):
            return
        self.pairs += 1
        self.total += pair.cosine
        self.lowest = min(self.lowest, pair.cosine)
        keep = 1 - 1 / self.running_pairs
        self.signal = keep * self.signal + (1 - keep) * pair.signal
        self.noise = keep * self.noise + (1 - keep) * pair.noise

    def add_micro(self, cosines: list[float]) -> None:
        """Cosines between neighbouring micro-batches of one applied window, of this rank."""
        finite = [value for value in cosines if math.isfinite(value)]
        self.micro_pairs += len(finite)
        self.micro_total += sum(finite)

    @property
    def micro(self) -> Tensor:
        """[2], fp64: pairs and sum of this rank, to be summed over ranks."""
        return torch.tensor([self.micro_pairs, self.micro_total], dtype=torch.float64)

    def take(self, micro: Tensor | None = None) -> dict[str, float]:
        """Means since the last call, NaN where there was no pair, and the noise scale so far; `micro`: the
        sum over ranks of all their `micro`."""
        values = {
            "direction/cosine": self.total / self.pairs if self.pairs else math.nan,
            "direction/cosine_min": self.lowest if self.pairs else math.nan,
            # A running signal below zero means that it drowns in noise: no number says how much.
            "direction/noise_scale": self.noise / self.signal if self.signal > 0 else math.nan,
        }
        if micro is not None:
            count, total = micro.tolist()
            values["direction/micro_cosine"] = total / count if count else math.nan
        self.pairs, self.total, self.lowest = 0, 0.0, math.inf
        self.micro_pairs, self.micro_total = 0.0, 0.0
        return values

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "running_pairs"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
