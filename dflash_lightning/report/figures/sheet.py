"""A figure before and after it is drawn: what it shows in words, and its picture as SVG or PNG.

in    Figure: title, caption, and a function that draws into a Sheet's axes
out   draw_svg (text that follows the page's colours, no address in it), draw_png
"""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from dflash_lightning.report.figures.palette import LIGHT, themed

PIXELS_PER_INCH = 96
STEP = "optimizer step"
LONGEST_LABEL = 36


@dataclass(frozen=True, kw_only=True)
class Size:
    """Room for one figure, in CSS pixels."""

    width: int
    height: int

    @property
    def bins(self) -> int:
        """Stretches of a long series: a point every three pixels or so."""
        return max(40, self.width // 4)


WIDE = Size(width=1120, height=330)
HALF = Size(width=545, height=330)
PHONE = Size(width=350, height=270)


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """What a drawing function is given."""

    axes: list[Any]
    """Panels above each other, sharing the x axis."""
    size: Size


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A step to look at."""

    step: int
    alarming: bool
    """A dashed line through the figure; else a tick at its foot, for what comes back many times."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of the report."""

    name: str
    """File name without ending, and the anchor in the page."""
    title: str
    caption: str
    """One sentence: how to read it."""
    draw: Callable[[Sheet], None]
    panels: int = 1
    wide: bool = False
    """Takes the width of the page on a desktop."""
    num_buckets: int = 0
    """Buckets whose colours it uses."""
    x_label: str = STEP
    marks: tuple[Mark, ...] = ()
    """Steps to look at, drawn where the x axis is steps."""


def as_label(name: str) -> str:
    """A run's name as matplotlib shows it literally: no formulas, and not hidden for a leading underscore.

    Of a long one the end is kept: paths differ there.
    """
    shown = name if len(name) <= LONGEST_LABEL else "..." + name[-LONGEST_LABEL:]
    return " " * shown.startswith("_") + shown.replace("$", r"\$")


def draw_svg(figure: Figure, size: Size) -> str:
    """An inline `<svg>`: no XML prolog, no address, identifiers of its own, colours as CSS variables."""
    buffer = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": figure.name}):
        _canvas(figure, size).savefig(buffer, format="svg", transparent=True, metadata=metadata)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r' xmlns(:xlink)?="[^"]*"| width="[\d.]+pt"| height="[\d.]+pt"| version="1.1"', "", svg, count=5
    )
    prefix = f"{figure.name}-{size.width}-"
    svg = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{prefix}", svg)
    return themed(re.sub(r"\n\s*", "\n", svg), figure.num_buckets)


def draw_png(figure: Figure, size: Size) -> bytes:
    """The same figure on white, with its title, at twice the size."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        canvas = _canvas(figure, size)
        canvas.suptitle(figure.title, fontsize=9.5, color=LIGHT["ink"])
        canvas.savefig(buffer, format="png", dpi=2 * PIXELS_PER_INCH, facecolor="white")
    return buffer.getvalue()


def _canvas(figure: Figure, size: Size) -> Any:
    # Figures side by side are equally high, whatever they hold; on a phone each stands alone.
    taller = size == PHONE and figure.panels > 1
    inches = (size.width / PIXELS_PER_INCH, size.height * (1.3 if taller else 1) / PIXELS_PER_INCH)
    canvas = Canvas(figsize=inches, dpi=PIXELS_PER_INCH)
    canvas.set_layout_engine("constrained", h_pad=0.02, w_pad=0.02)
    axes = list(canvas.subplots(figure.panels, 1, sharex=True, squeeze=False)[:, 0])
    figure.draw(Sheet(axes=axes, size=size))
    axes[-1].set_xlabel(figure.x_label)
    for axis in axes:
        axis.margins(x=0.01)
        if axis.get_yscale() == "log":
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=6))
            axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(tick_label)
    if figure.x_label == STEP:
        axes[-1].xaxis.set_major_locator(MaxNLocator(nbins=max(5, size.width // 90), integer=True))
        axes[-1].xaxis.set_major_formatter(tick_label)
        _mark(axes, figure.marks)
    return canvas


def tick_label(value: float, position: int | None = None) -> str:
    """12,000 and 0.25, without losing a digit that tells two ticks apart; `position` is matplotlib's."""
    text = f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:,.6g}"
    return text.replace("-", "\N{MINUS SIGN}", 1) if value < 0 else text


def _mark(axes: list[Any], marks: tuple[Mark, ...]) -> None:
    """Lines and ticks; they do not widen the axis, for a mark outside of what was read shows nothing."""
    low, high = axes[0].get_xlim()
    for mark in marks:
        for axis in axes if low <= mark.step <= high else []:
            if mark.alarming:
                axis.axvline(mark.step, color=LIGHT["bad"], lw=0.9, ls=(0, (4, 3)), alpha=0.8, zorder=1.5)
            else:
                axis.axvline(mark.step, ymax=0.05, color=LIGHT["warn"], lw=1.1)
    axes[0].set_xlim(low, high)


_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8.8,
    "text.color": LIGHT["ink"],
    "axes.edgecolor": LIGHT["line"],
    "axes.labelcolor": LIGHT["muted"],
    "axes.labelsize": 8.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.limits": (-4, 7),
    "grid.color": LIGHT["line"],
    "grid.linewidth": 0.7,
    "xtick.color": LIGHT["line"],
    "ytick.color": LIGHT["line"],
    "xtick.labelcolor": LIGHT["muted"],
    "ytick.labelcolor": LIGHT["muted"],
    "ytick.major.size": 0,
    "lines.linewidth": 1.5,
    "lines.solid_joinstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.8,
    "legend.handlelength": 1.3,
    "legend.columnspacing": 1.2,
    "legend.handletextpad": 0.5,
    "legend.borderaxespad": 0.1,
}
