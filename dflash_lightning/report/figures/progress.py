"""Figures of the optimizer's steps: gradient norm, direction, learning rate.

in    Run
out   Figure, or None where the logs hold no such values
"""

import numpy as np

from dflash_lightning.report.figures.loss import draw_line, draw_lines, fit_scale, legend
from dflash_lightning.report.figures.palette import LIGHT, LINES, ROLES
from dflash_lightning.report.figures.reading import grouped, has, series
from dflash_lightning.report.figures.sheet import Figure, Sheet, as_label
from dflash_lightning.report.figures.thin import envelope
from dflash_lightning.report.run import FloatArray, Run


def gradient_figure(run: Run) -> Figure | None:
    """`train/grad_norm`, the share of clipped steps, and skipped steps."""
    norm, clipped = series(run, "train/grad_norm"), series(run, "train/clipped_pct")
    running, skipped = series(run, "train/grad_norm_running"), skipped_steps(run)
    if not len(norm[0]):
        return None

    def draw(sheet: Sheet) -> None:
        axis = sheet.axes[0]
        draw_line(axis, norm, sheet, colour=LIGHT["main"], label="norm before clipping")
        if len(running[0]):
            points = envelope(*running, sheet.size.bins)
            axis.plot(*points, "--", color=LIGHT["third"], label="running mean")
        fit_scale(axis, norm[1])
        axis.set_ylabel("norm")
        if len(skipped):
            top = np.full(len(skipped), 0.97)
            look = {"ms": 6, "mew": 1.6, "color": LIGHT["bad"], "transform": axis.get_xaxis_transform()}
            axis.plot(skipped, top, "x", label="skipped step", **look)
        if len(clipped[0]):
            low = sheet.axes[1]
            low.fill_between(*envelope(*clipped, sheet.size.bins), color=LIGHT["warn"], alpha=0.45, lw=0)
            low.set_ylim(0, 105)
            low.set_ylabel("clipped (%)")
        legend(sheet)

    return Figure(
        name="gradient_norm",
        title="Gradient norm",
        caption="The norm before clipping with, below it, the share of steps that clipping shortened: a norm "
        "that jumps by a multiple is the first sign of instability, a red cross is a step that was skipped.",
        draw=draw,
        panels=2 if len(clipped[0]) else 1,
    )


def group_figure(run: Run) -> Figure | None:
    """`grad_norm/{group}`: one line per group of parameters."""
    groups = grouped(run, "grad_norm/")
    if not groups:
        return None

    def draw(sheet: Sheet) -> None:
        axis = sheet.axes[0]
        for index, (group, points) in enumerate(groups.items()):
            look = {"color": LIGHT[ROLES[index % len(ROLES)]], "ls": LINES[index // len(ROLES) % len(LINES)]}
            axis.plot(*envelope(*points, sheet.size.bins), lw=1.1, label=as_label(group), **look)
        fit_scale(axis, np.concatenate([points[1] for points in groups.values()]))
        axis.set_ylabel("norm")
        legend(sheet)

    return Figure(
        name="gradient_norm_per_group",
        title="Gradient norm per group",
        caption="Which part of the drafter a jump of the norm comes from: one line that leaves the others "
        "names the layer to look at.",
        draw=draw,
    )


def direction_figure(run: Run) -> Figure | None:
    """Cosine between consecutive gradients, and the gradient noise scale."""
    lines = (
        ("direction/cosine", "window to window", "main"),
        ("direction/cosine_min", "lowest of them", "raw"),
        ("direction/micro_cosine", "inside a window", "third"),
    )
    noise = series(run, "direction/noise_scale")
    if not has(run, *(name for name, _, _ in lines), "direction/noise_scale"):
        return None

    def draw(sheet: Sheet) -> None:
        axis = sheet.axes[0]
        axis.axhline(0, color=LIGHT["muted"], lw=0.9)
        draw_lines(axis, run, lines, sheet)
        axis.set_ylabel("cosine")
        if len(noise[0]):
            draw_line(sheet.axes[1], noise, sheet, colour=LIGHT["second"], label="")
            sheet.axes[1].set_ylabel("noise scale")
        legend(sheet)

    return Figure(
        name="direction",
        title="Direction of the gradient",
        caption="Above zero, consecutive steps pull the same way; hovering well below zero means that they "
        "undo each other; the noise scale says from which window size on larger windows stop helping.",
        draw=draw,
        panels=2 if len(noise[0]) else 1,
    )


def rate_figure(run: Run) -> Figure | None:
    """`train/lr`."""
    rate = series(run, "train/lr")
    if not len(rate[0]):
        return None

    def draw(sheet: Sheet) -> None:
        draw_line(sheet.axes[0], rate, sheet, colour=LIGHT["main"], label="")
        sheet.axes[0].set_ylabel("learning rate")
        sheet.axes[0].set_ylim(bottom=0)

    return Figure(
        name="learning_rate",
        title="Learning rate",
        caption="The schedule as it ran: a change of pace in the loss at a bend of this line is expected.",
        draw=draw,
    )


def skipped_steps(run: Run) -> FloatArray:
    """Steps whose gradient was not finite, from `skipped_steps.jsonl`."""
    steps = {float(record["step"]) for record in run.skipped if isinstance(record.get("step"), int | float)}
    return np.array(sorted(steps))
