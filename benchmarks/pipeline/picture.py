"""The simulation as one picture: throughput against its limit, waits by depth, queues that drift, splits."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.pipeline.costs import Costs
from benchmarks.pipeline.real import Setting, limit
from benchmarks.pipeline.studies import SPLITS, WAYS, policy

COLORS = {"round_robin": "tab:orange", "least_loaded": "tab:blue"}
LINES = {"in_order": "--", "ready_first": "-"}


def draw(found: Mapping[str, Mapping[Any, Any]], costs: Costs, path: Path) -> None:
    """As many panels as studies were run."""
    panels = {"devices": _devices, "depth": _depth, "splits": _splits}
    shown = [name for name in panels if name in found]
    figure, axes = plt.subplots(1, len(shown), figsize=(4.4 * len(shown), 3.8), layout="constrained")
    for axis, name in zip(axes, shown, strict=True):
        panels[name](axis, found[name], costs)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _devices(axis: Axes, runs: Mapping[Any, Any], costs: Costs) -> None:
    numbers = range(1, 9)
    bounds = [
        limit(Setting(policy=policy(WAYS[0], 4), costs=costs, targets=n), costs.target, costs.drafter)
        for n in numbers
    ]
    axis.plot(numbers, bounds, color="0.75", linewidth=6, label="limit", zorder=0)
    for way in WAYS:
        share = [runs[(*way, str(n))].efficiency * bound for n, bound in zip(numbers, bounds, strict=True)]
        axis.plot(numbers, share, LINES[way[1]], color=COLORS[way[0]], marker=".", label=", ".join(way))
    axis.set(xlabel="target devices of one drafter", ylabel="batches / s", ylim=(0, None))
    axis.set_title(f"target {costs.target:g} s, drafter {costs.drafter:g} s a batch, depth 4", fontsize=9)
    axis.legend(fontsize=7)


def _depth(axis: Axes, runs: Mapping[Any, Any], costs: Costs) -> None:
    depths = ("1", "2", "4", "8")
    for way in WAYS:
        waits = [100 * runs[(*way, depth)].waiting for depth in depths]
        axis.plot(depths, waits, LINES[way[1]], color=COLORS[way[0]], marker=".", label=", ".join(way))
    axis.set(xlabel="depth (batches a device may be ahead)", ylabel="training waits, %", ylim=(0, None))
    axis.set_title("3 targets that just balance 1 drafter", fontsize=9)
    axis.legend(fontsize=7)


def _splits(axis: Axes, runs: Mapping[Any, Any], costs: Costs) -> None:
    ratios = ("1", "3", "7")
    width = 0.8 / len(SPLITS)
    for i, name in enumerate(SPLITS):
        places = [j + i * width for j in range(len(ratios))]
        axis.bar(places, [runs[(name, ratio)].per_second for ratio in ratios], width * 0.9, label=name)
        for place, ratio in zip(places, ratios, strict=True):
            bound = runs[(name, ratio)].limit
            axis.plot([place - width / 2, place + width / 2], [bound, bound], color="black", linewidth=1)
    axis.set_xticks([j + width * 1.5 for j in range(len(ratios))], [f"{ratio}" for ratio in ratios])
    axis.set(xlabel="seconds of the target / of the drafter", ylabel="batches / s of 8 devices (bar: limit)")
    axis.set_title("targets + drafters", fontsize=9)
    axis.legend(fontsize=7)
