"""A picture of the documented mix in every order."""

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from benchmarks.ordering.mix import EDGES, LARGEST
from dflash_lightning.plan.judge.mix import window_counts
from dflash_lightning.plan.samples import IntArray

PICTURE = Path("runs/ordering/figures.png")


def draw(labels: dict[str, list[IntArray]]) -> None:
    """Share of the largest bucket along the epoch, and of each bucket in windows of 32."""
    figure, (course, spread) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    styles = {"shuffle": "0.6", "diversity_first": "tab:orange", "credit": "black"}
    for name, seeds in labels.items():
        parts = np.array_split(seeds[0], 100)
        share = [100 * (part == LARGEST).mean() for part in parts]
        course.plot(
            share, color=styles[name], linestyle="--" if name == "diversity_first" else "-", label=name
        )
        counts = window_counts(seeds[0], len(EDGES), 32)[: len(seeds[0]) // 32, LARGEST]
        bins = np.arange(34) - 0.5
        spread.hist(
            counts, bins, histtype="step", color=styles[name], label=name, density=True, linewidth=1.5
        )
    course.set_xlabel("share of the epoch that is done (%)")
    course.set_ylabel("batches from the largest bucket (%)")
    spread.set_xlabel("batches from the largest bucket in a window of 32")
    spread.set_ylabel("share of the windows")
    spread.set_yscale("log")
    for axis in (course, spread):
        axis.legend()
        axis.grid(alpha=0.3)
    figure.suptitle("The documented mix in three orders")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=120)
    plt.close(figure)
