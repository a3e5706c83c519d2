"""Strategies side by side on one page.

in    facts by name
out   a PNG, 1800 pixels wide
law   the same strategies in the same rows of every panel
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from dflash_lightning.plan_view.columns import percent, plural
from dflash_lightning.plan_view.compare import against_shuffled
from dflash_lightning.plan_view.facts import PlanFacts
from dflash_lightning.plan_view.pictures import DARK, LIGHT, RED, draw_mix, legend_of_buckets

_ACROSS = 5
"""Small pictures of the mix in one row."""
_NO_GAIN = 0.95
"""Mean TV / mean TV shuffled above which an order is no better than chance."""
_HATCHED = {"color": LIGHT, "hatch": "////", "edgecolor": "black", "linewidth": 0.5}


def draw_comparison(compared: Mapping[str, PlanFacts], output: Path, *, source: str) -> None:
    """Draw and save. Raises OSError where the file cannot be written."""
    mix_rows = -(-len(compared) // _ACROSS)
    bars = 1.6 + 0.42 * len(compared)
    with plt.rc_context({"font.size": 11, "axes.titlesize": 11, "hatch.linewidth": 0.6}):
        figure = plt.figure(figsize=(15, 1.2 + 2.3 * mix_rows + 2 * bars), layout="constrained")
        top, bottom = figure.subfigures(2, 1, height_ratios=[2.3 * mix_rows + 0.6, 2 * bars])
        settings = next(iter(compared.values())).settings
        figure.suptitle(
            f"{source}: {plural(len(compared), 'strategy')} on windows of "
            f"{plural(settings.window_batches, 'batch')} ({settings.world} x {settings.accumulate})",
            fontsize=13,
        )
        _draw_mixes(top, compared, mix_rows)
        panels = bottom.subplots(2, 2, sharey=True)
        names = list(compared)
        _draw_windows(panels[0, 0], names, list(compared.values()))
        _draw_runs(panels[0, 1], names, list(compared.values()))
        _draw_padding(panels[1, 0], names, list(compared.values()))
        _draw_balance(panels[1, 1], names, list(compared.values()))
        figure.savefig(output, dpi=120)
        plt.close(figure)


def _draw_mixes(figure: Any, compared: Mapping[str, PlanFacts], rows: int) -> None:
    axes = figure.subplots(rows, min(_ACROSS, len(compared)), squeeze=False, sharex=True, sharey=True)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, (name, facts) in zip(axes.flat, compared.items(), strict=False):
        axis.set_axis_on()
        draw_mix(axis, facts)
        axis.set(title=f"{name}, longest rows" if facts.mixes_buckets else name, xlabel="", ylabel="")
        axis.tick_params(labelbottom=True)
    figure.supxlabel("position in the epoch (%)", fontsize=11)
    figure.supylabel("share of batches (%)", fontsize=11)
    if len({facts.plan.edges for facts in compared.values()}) == 1:
        handles = legend_of_buckets(next(iter(compared.values())))[::-1]
        figure.legend(handles=handles, title="bucket: tokens", loc="outside right center", frameon=False)
    else:  # strategies with edges of their own
        figure.suptitle(
            "Bucket mix over the epoch, dark: the shortest bucket, light: the longest", fontsize=12
        )


def _bars(axis: Axes, names: Sequence[str], pairs: Sequence[tuple[Sequence[float], dict[str, Any], str]],
          form: str) -> None:  # fmt: skip
    """Horizontal bars, one group per strategy, the first strategy on top; each bar says its value."""
    places, height = np.arange(len(names)), 0.8 / len(pairs)
    for i, (values, style, label) in enumerate(pairs):
        offset = (i - (len(pairs) - 1) / 2) * height
        bars = axis.barh(places + offset, values, height=0.95 * height, label=label, **style)
        axis.bar_label(bars, [form.format(value) for value in values], padding=3, fontsize=9)
    _name_rows(axis, names)


def _name_rows(axis: Axes, names: Sequence[str]) -> None:
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.4, -0.6)


def _draw_windows(axis: Axes, names: Sequence[str], compared: Sequence[PlanFacts]) -> None:
    """Mean and worst TV, with what chance and whole batches give."""
    mixes, places = [facts.judgement.mix for facts in compared], np.arange(len(names))
    axis.hlines(places, [m.tv_mean for m in mixes], [m.tv_max for m in mixes], color=DARK, linewidth=1.5)
    for values, marker, colour, label in (
        ([m.tv_mean for m in mixes], "o", DARK, "mean window"),
        ([m.tv_max for m in mixes], "|", DARK, "worst window"),
        ([facts.shuffled.tv_mean for facts in compared], "x", RED, "shuffled, mean"),
        ([m.tv_floor for m in mixes], "^", "#888888", "floor"),
    ):
        axis.plot(values, places, linestyle="", marker=marker, markersize=8, color=colour, label=label)
    _name_rows(axis, names)
    axis.set_xlim(left=0)
    axis.grid(axis="x", alpha=0.3)
    axis.set_xlabel("TV of a window to the epoch's mix (0 to 1)")
    axis.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=4.2, ncols=4, fontsize=9, frameon=False
    )
    axis.set_title(windows_finding(dict(zip(names, compared, strict=True))))


def windows_finding(compared: Mapping[str, PlanFacts]) -> str:
    """The title of the windows: who gains most over chance, of those whose batches hold one bucket each."""
    ratios = {
        name: against_shuffled(facts) or 0.0
        for name, facts in compared.items()
        if facts.shuffled.tv_mean and not facts.mixes_buckets
    }
    best = min(ratios, key=lambda name: ratios[name], default=None)
    if best is None or ratios[best] > _NO_GAIN:
        return "Window mix: none is nearer to the epoch's than shuffled"
    return f"Window mix: {best} gains most over shuffling"


def _draw_runs(axis: Axes, names: Sequence[str], compared: Sequence[PlanFacts]) -> None:
    runs = [facts.judgement.runs for facts in compared]
    longest = [float(run.longest_run) for run in runs]
    final = [float(run.final_run) for run in runs]
    _bars(axis, names, [(longest, {"color": DARK}, "longest"), (final, _HATCHED, "at the end")], "{:,.0f}")
    axis.set_xscale("log")
    axis.set_xlim(0.8, 6 * max(longest))
    axis.set_xlabel("batches of one bucket in a row (log scale)")
    axis.legend(loc="best", fontsize=9)
    worst = int(np.argmax(longest))
    axis.set_title(f"Runs: the longest is {longest[worst]:,.0f}, by {names[worst]}")


def _draw_padding(axis: Axes, names: Sequence[str], compared: Sequence[PlanFacts]) -> None:
    padding = [100 * (1 - facts.judgement.summary.padding_efficiency) for facts in compared]
    _bars(axis, names, [(padding, _HATCHED, "padding")], "{:.1f}%")
    for place, facts in enumerate(compared):
        axis.annotate(f"{facts.judgement.summary.batches:,} batches", (1.0, place), xytext=(-4, 0),
                      xycoords=("axes fraction", "data"), textcoords="offset points",
                      ha="right", va="center", fontsize=9)  # fmt: skip
    axis.set_xlim(0, 1.6 * max(*padding, 1.0))
    axis.set_xlabel("padding, share of all computed tokens (%)")
    least = int(np.argmin(padding))
    if max(padding) - min(padding) < 0.05:
        axis.set_title(f"Padding: {percent(padding[0] / 100)} with every strategy")
    else:
        axis.set_title(f"Padding: {names[least]} wastes least, {percent(padding[least] / 100)}")


def _draw_balance(axis: Axes, names: Sequence[str], compared: Sequence[PlanFacts]) -> None:
    balance = [facts.judgement.balance for facts in compared]
    models = (
        ([100 * (b.linear - 1) for b in balance], {"color": DARK}, "linear"),
        ([100 * (b.quadratic - 1) for b in balance], {"color": "#7f8fc0"}, "quadratic"),
        ([100 * (b.blocks - 1) for b in balance], _HATCHED, "blocks"),
    )
    _bars(axis, names, models, "{:.1f}")
    most = max(1.0, *(value for values, _, _ in models for value in values))
    axis.set_xlim(0, 1.35 * most)
    axis.set_xlabel("slowest rank over mean rank, per optimizer step (%)")
    axis.legend(loc="best", fontsize=9, title="model of cost")
    if compared[0].settings.world == 1:
        axis.set_title("Balance: a single rank waits for nobody")
        return
    worst = [max(values) for values in zip(*(values for values, _, _ in models), strict=True)]
    best = int(np.argmin(worst))
    axis.set_title(f"Balance: most even with {names[best]}")
