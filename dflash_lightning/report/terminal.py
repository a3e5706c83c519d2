"""The report as text: verdicts, then one bar per logged step.

in    Run, its verdicts
out   lines (rich Text) that fit a width
law   the highest loss is the end of some bar: a spike inside a group is not averaged away
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.text import Text

from dflash_lightning.report.facts import headline, key_figures
from dflash_lightning.report.figures.progress import skipped_steps
from dflash_lightning.report.figures.reading import series
from dflash_lightning.report.run import Run
from dflash_lightning.report.verdict import Verdict

TONES = {"instability": "bold red", "checkpoint": "bold yellow", "steady": "bold green"}
EIGHTHS = " ▏▎▍▌▋▊▉"
MANY = 40
"""Bars that fit a screen; a longer run is grouped, unless every step is asked for."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One line: a step, or several in a row."""

    steps: tuple[int, int]
    mean: float
    highest: float
    remark: str


def describe(
    run: Run, verdicts: Sequence[Verdict], *, width: int, ascii_only: bool, every_step: bool
) -> Text:
    """The whole text of one run."""
    lines = [Text(run.name, style="bold"), Text(run.path, style="dim"), Text()]
    for verdict in verdicts:
        lines += _verdict_lines(verdict)
    figures = "   ".join(f"{label} {value}" for label, value in key_figures(run).items())
    lines += [Text(), Text(figures), *(Text(f"note: {note}", style="dim") for note in run.notes), Text()]
    marks = {step: verdict.kind for verdict in reversed(verdicts) for step in verdict.steps}
    bars = make_bars(run, marks, limit=None if every_step else MANY)
    lines += [Text(line) for line in draw_bars(bars, width=width, ascii_only=ascii_only)]
    return Text("\n").join(lines)


def make_bars(run: Run, marks: Mapping[int, str], *, limit: int | None) -> list[Bar]:
    """One bar per logged step, or `limit` bars over groups of equally many.

    Args:
        marks: Step to look at -> the kind of verdict that names it.
    """
    steps, loss = series(run, "train/loss")
    groups = np.array_split(np.arange(len(steps)), min(len(steps), limit or len(steps)) or 1)
    skipped = {int(step) for step in skipped_steps(run)}
    bars, reached = [], -1
    for group in groups:
        if not len(group):
            continue
        first, last = int(steps[group[0]]), int(steps[group[-1]])
        covers = range(reached + 1, last + 1)  # a logged row covers all steps since the one before
        words = ["skipped"] * any(step in covers for step in skipped)
        words += sorted({f"<- {kind}" for step, kind in marks.items() if step in covers})
        values = loss[group]
        bars.append(
            Bar(steps=(first, last), mean=values.mean(), highest=values.max(), remark=", ".join(words))
        )
        reached = last
    return bars


def draw_bars(bars: Sequence[Bar], *, width: int, ascii_only: bool) -> list[str]:
    """Bars from the lowest mean to the highest value, with a line above that gives the scale."""
    if not bars:
        return ["no finite loss in these steps"]
    low, high = min(bar.mean for bar in bars), max(bar.highest for bar in bars)
    labels = [f"{a:,}" if a == b else f"{a:,}-{b:,}" for a, b in (bar.steps for bar in bars)]
    left = max(len(label) for label in (*labels, "step"))
    right = max(len(bar.remark) for bar in bars)
    room = max(8, width - left - right - 14)
    scale = f"bars from {low:.4g} to {high:.4g}"
    lines = [f"{'step':>{left}}  {'loss':>8}  {scale}"]
    if any(bar.highest > bar.mean for bar in bars):
        lines[0] += ", pale up to the highest of a group"
    for label, bar in zip(labels, bars, strict=True):
        drawn = _blocks(bar, low, high, room, ascii_only=ascii_only)
        lines.append(f"{label:>{left}}  {bar.mean:>8.4g}  {drawn:<{room}}  {bar.remark}".rstrip())
    return lines


def _blocks(bar: Bar, low: float, high: float, room: int, *, ascii_only: bool) -> str:
    scale = room / (high - low) if high > low else 0.0
    eighths = round((bar.mean - low) * scale * 8)
    reach = round((bar.highest - low) * scale)
    if ascii_only:
        solid = "#" * round(eighths / 8)
        return solid + "." * (reach - len(solid))
    solid = "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
    return solid + "░" * (reach - len(solid))


def _verdict_lines(verdict: Verdict) -> list[Text]:
    head = Text()
    head.append(verdict.kind.upper(), style=TONES.get(verdict.kind, "bold cyan"))
    head.append(f"  {headline(verdict)}")
    lines = [head, *(Text(f"  - {line}") for line in verdict.evidence)]
    if verdict.steps:
        lines.append(Text(f"  look at step {', '.join(f'{step:,}' for step in verdict.steps)}"))
    return lines
