"""The bucket mix of one epoch from its first step to its last, beside the plan's.

in    counts of every optimizer step, the plan's shares
out   rows of a table, a picture
law   memory is bounded: an epoch of any length is kept as at most 128 stretches of equally many steps
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from dflash_lightning.training.watch.bucket_counts import NAMES, FloatArray, IntArray

STRETCHES = 128
COLUMNS = ["bucket", "longest", "plan_pct", *(f"{name}_pct" for name in NAMES)]


@dataclass
class EpochMix:
    """Counts of the running epoch in stretches of `stretch_steps` optimizer steps."""

    epoch: int = -1
    stretch_steps: int = 1
    steps: int = 0
    stretches: list[list[list[int]]] = field(default_factory=list)
    """[stretches][batches, samples, tokens][buckets]"""

    def add(self, counts: IntArray, *, epoch: int) -> None:
        """Count one optimizer step [3, buckets]; the first one of another epoch starts anew."""
        if epoch != self.epoch:
            self.epoch, self.stretch_steps, self.steps, self.stretches = epoch, 1, 0, []
        if self.steps == STRETCHES * self.stretch_steps:
            pairs = np.array(self.stretches).reshape(STRETCHES // 2, 2, *counts.shape)
            self.stretches, self.stretch_steps = pairs.sum(axis=1).tolist(), 2 * self.stretch_steps
        if self.steps % self.stretch_steps == 0:
            self.stretches.append(np.zeros_like(counts).tolist())
        self.stretches[-1] = (np.array(self.stretches[-1]) + counts).tolist()
        self.steps += 1

    def rows(self, shares_of_plan: FloatArray, edges: Sequence[int]) -> list[list[float]]:
        """One row per bucket: number, longest sample (tokens), percent of the plan's batches, and percent of
        the batches, samples and tokens consumed."""
        counts = np.array(self.stretches, np.int64).sum(axis=0)
        percent = 100.0 * counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
        return [
            [float(i), float(edge), 100.0 * float(shares_of_plan[i]), *percent[:, i].tolist()]
            for i, edge in enumerate(edges)
        ]

    def draw(self, figure: Figure, shares_of_plan: FloatArray, edges: Sequence[int]) -> None:
        """Percent of batches per bucket over the epoch, stacked; dashed: where the plan's shares end."""
        batches = np.array(self.stretches, np.int64)[:, 0, :]
        percent = 100.0 * batches / np.maximum(1, batches.sum(axis=1, keepdims=True))
        borders = np.minimum(np.arange(len(percent) + 1) * self.stretch_steps, self.steps)
        axes = figure.add_subplot()
        colors = colormaps["viridis"](np.linspace(0.1, 0.9, len(edges)))
        below = np.zeros(len(percent))
        for bucket, edge in enumerate(edges):
            above = below + percent[:, bucket]
            name = f"{bucket}: up to {edge} tokens"
            axes.stairs(above, borders, baseline=below, fill=True, color=colors[bucket], label=name)
            below = above
        for share in 100.0 * np.cumsum(shares_of_plan)[:-1]:
            axes.axhline(share, color="white", linestyle="--", linewidth=1)
        axes.set(xlabel=f"optimizer step of epoch {self.epoch}", ylabel="batches [%]", ylim=(0, 100))
        axes.set_title("Bucket mix; dashed: the plan's")
        handles, names = axes.get_legend_handles_labels()
        figure.legend(handles[::-1], names[::-1], loc="outside right upper", frameon=False)

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
