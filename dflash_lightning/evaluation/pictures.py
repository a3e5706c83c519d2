"""An evaluation on one page: how long, how fast, how far, and on what.

in    Evaluation
out   a PNG, 1800 pixels wide (or a PDF, an SVG)
law   zero is on every axis of lengths and speeds; methods keep their place and shade in every panel
"""

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from dflash_lightning.decoding.acceptance import AcceptanceLength
from dflash_lightning.evaluation.figures import Figures, Part
from dflash_lightning.evaluation.result import Evaluation
from dflash_lightning.evaluation.table import how_drawn
from dflash_lightning.plan_view.columns import plural

GREY, RED = "#8c8c8c", "#c0392b"
_PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 1}


def draw_evaluation(found: Evaluation, output: Path) -> None:
    """Draw and save. Raises OSError where the file cannot be written."""
    many = len(found.parts) > 1
    layout = [["tau", "speed"], ["rounds", "slots"], *([["categories", "categories"]] * many)]
    settings = {"font.size": 11, "axes.titlesize": 12, "text.parse_math": False}  # a name may hold dollars
    with plt.rc_context(settings):
        figure, axes = plt.subplot_mosaic(layout, figsize=(15, 13 if many else 9), layout="constrained")
        figure.suptitle(_title(found), fontsize=13)
        colours = shades(found.drafting)
        _draw_tau(axes["tau"], found, colours)
        _draw_speed(axes["speed"], found, colours)
        _draw_rounds(axes["rounds"], found.drafting, colours)
        _draw_slots(axes["slots"], found.drafting, colours)
        if many:
            _draw_categories(axes["categories"], found, colours)
        figure.savefig(output, dpi=120)
        plt.close(figure)


def shades(methods: Sequence[Figures]) -> dict[str, Any]:
    """Light to dark in the order of the methods, so that greyscale keeps them apart."""
    places = np.linspace(0.85, 0.1, len(methods))
    return {
        figures.name: colour for figures, colour in zip(methods, plt.get_cmap("viridis")(places), strict=True)
    }


def _title(found: Evaluation) -> str:
    drafters = " against ".join(f"{label} {folder}".strip() for label, folder in found.drafters.items())
    return (
        f"{drafters} on {found.target}: {plural(found.whole.prompts, 'prompt')}, "
        f"{how_drawn(found)}, at most {plural(found.max_new_tokens, 'token')} each"
    )


def _draw_tau(axis: Axes, found: Evaluation, colours: dict[str, Any]) -> None:
    rows = [(f.name, f.acceptance, colours[f.name]) for f in found.drafting]
    rows.append(("prompt lookup", found.whole.lookup, GREY))
    names = [name for name, _, _ in rows]
    values = [_number(acceptance.pooled) for _, acceptance, _ in rows]
    bars = axis.barh(names, values, color=[colour for _, _, colour in rows])
    axis.bar_label(bars, [f"{value:.2f}" for value in values], padding=12)
    firsts = [_number(acceptance.first32) for _, acceptance, _ in rows]
    axis.scatter(firsts, names, marker="|", s=260, color=RED, zorder=3, label="first 32 new tokens")
    _until(axis, [*values, *firsts])
    axis.set(title="Acceptance length: tokens per target pass, pooled", xlabel="tau; 1 is plain decoding")
    axis.invert_yaxis()
    axis.legend(frameon=False, loc="best")


def _draw_speed(axis: Axes, found: Evaluation, colours: dict[str, Any]) -> None:
    methods = found.whole.methods
    values = [figures.speed_up for figures in methods]
    bars = axis.barh([f.name for f in methods], values, color=[colours.get(f.name, GREY) for f in methods])
    axis.bar_label(
        bars, [f"{f.speed_up:.2f}   {f.tokens_per_s:.1f} tokens/s" for f in methods], padding=4, bbox=_PAPER
    )
    axis.axvline(1.0, color=RED, linewidth=1, zorder=0)
    _until(axis, values, room=1.6)
    axis.set(
        title="Speed: the red line is plain decoding in the same run",
        xlabel=f"times the speed of plain decoding, {found.batch_size} prompts at a time",
    )
    axis.invert_yaxis()


def _draw_rounds(axis: Axes, methods: Sequence[Figures], colours: dict[str, Any]) -> None:
    widest = max((len(figures.histogram) for figures in methods), default=1)
    width, tallest = 0.8 / max(1, len(methods)), 1.0
    for i, figures in enumerate(methods):
        shares = 100 * np.array(figures.histogram) / max(1, sum(figures.histogram))
        places = np.arange(1, len(shares) + 1) + (i - (len(methods) - 1) / 2) * width
        axis.bar(places, shares, 0.95 * width, color=colours[figures.name], label=figures.name)
        tallest = max(tallest, *shares, 0.0)
    axis.set(title="Rounds by tokens committed", xlabel="tokens of a round", ylabel="% of rounds")
    axis.set_xticks(range(1, widest + 1))
    _legend_above(axis, tallest, len(methods))


def _draw_slots(axis: Axes, methods: Sequence[Figures], colours: dict[str, Any]) -> None:
    for figures in methods:
        places = range(1, len(figures.slots) + 1)
        shares = [100 * share for share in figures.slots]
        axis.plot(places, shares, marker="o", color=colours[figures.name], label=figures.name)
    axis.set(title="Rounds in which the draft of a slot stood", xlabel="slot", ylabel="% of rounds")
    axis.set_xticks(range(1, max((len(figures.slots) for figures in methods), default=1) + 1))
    axis.set_yticks(range(0, 101, 20))
    _legend_above(axis, 100.0, len(methods))


def _draw_categories(axis: Axes, found: Evaluation, colours: dict[str, Any]) -> None:
    parts = found.parts[1:]
    names = [figures.name for figures in found.drafting]
    width = 0.8 / (len(names) + 1)
    for i, name in enumerate([*names, "prompt lookup"]):
        lengths = [p.lookup if name == "prompt lookup" else p.of(name).acceptance for p in parts]
        places = np.arange(len(parts)) + (i - len(names) / 2) * width
        values = [_number(acceptance.pooled) for acceptance in lengths]
        axis.bar(places, values, 0.95 * width, color=colours.get(name, GREY), label=name)
    axis.set_xticks(
        range(len(parts)), [f"{part.category}\n{plural(part.prompts, 'prompt')}" for part in parts]
    )
    tallest = max(_number(acceptance.pooled) for p in parts for acceptance in _lengths(p))
    axis.set(title="Acceptance length by category", ylabel="tau, pooled", ylim=(0, 1.2 * max(1.0, tallest)))
    axis.legend(frameon=False, ncols=len(names) + 1)


def _legend_above(axis: Axes, tallest: float, entries: int) -> None:
    """In rows of four over the data, which ends at `tallest`: no bar or line runs through it."""
    rows = -(-entries // 4)
    axis.set_ylim(0, (1.06 + 0.1 * rows) * tallest)
    axis.legend(frameon=False, loc="upper center", ncols=4)


def _lengths(part: Part) -> list[AcceptanceLength]:
    return [part.lookup, *(figures.acceptance for figures in part.methods)]


def _number(value: float) -> float:
    return 0.0 if isnan(value) else value


def _until(axis: Axes, values: Sequence[float], *, room: float = 1.25) -> None:
    axis.set_xlim(0, room * max(1.0, *values))
