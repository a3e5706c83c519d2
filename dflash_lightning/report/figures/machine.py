"""Figures of the machine: throughput, where the time goes, pace and checkpoint stalls, memory.

in    Run
out   Figure, or None where the logs hold no such values
"""

import numpy as np

from dflash_lightning.report.figures.loss import draw_line, draw_lines, legend
from dflash_lightning.report.figures.palette import LIGHT
from dflash_lightning.report.figures.reading import Series, has, series
from dflash_lightning.report.figures.sheet import Figure, Sheet
from dflash_lightning.report.figures.thin import means
from dflash_lightning.report.run import Run

SHARES = (
    ("time/drafter_pct", "drafter", "main"),
    ("time/target_pct", "target", "third"),
    ("time/optimizer_pct", "optimizer", "warn"),
    ("time/data_pct", "waiting for data", "second"),
    ("time/storage_pct", "storage", "bad"),
    ("time/other_pct", "other", "raw"),
)


def throughput_figure(run: Run) -> Figure | None:
    """Real and padded tokens per second."""
    lines = (
        ("throughput/padded_tokens_per_s", "with padding", "raw"),
        ("throughput/tokens_per_s", "real tokens", "main"),
    )
    if not has(run, *(name for name, _, _ in lines)):
        return None

    def draw(sheet: Sheet) -> None:
        draw_lines(sheet.axes[0], run, lines, sheet)
        sheet.axes[0].set_ylim(bottom=0)
        sheet.axes[0].set_ylabel("tokens per second")
        legend(sheet)

    return Figure(
        name="throughput",
        title="Throughput",
        caption="Tokens per second over all ranks: the gap between the lines is padding, a dip is a stall.",
        draw=draw,
    )


def time_figure(run: Run) -> Figure | None:
    """Share of the time in each part of a step, stacked."""
    shown = [(name, label, role) for name, label, role in SHARES if has(run, name)]
    if not shown:
        return None

    def draw(sheet: Sheet) -> None:
        axis = sheet.axes[0]
        columns = [means(*series(run, name), sheet.size.bins // 2) for name, _, _ in shown]
        steps = max((column[0] for column in columns), key=len)
        axis.stackplot(
            steps,
            [np.interp(steps, *column) for column in columns],
            colors=[LIGHT[role] for _, _, role in shown],
            labels=[label for _, label, _ in shown],
            alpha=0.85,
            lw=0,
        )
        axis.set_ylim(0, 100)
        axis.set_ylabel("time (%)")
        legend(sheet)

    return Figure(
        name="time_shares",
        title="Where the time goes",
        caption="The wider a colour, the more of each step it takes: waiting for data or storage should be a "
        "sliver.",
        draw=draw,
    )


def stalls_figure(run: Run) -> Figure | None:
    """Seconds per step, with what checkpoints blocked."""
    pace, blocked = pace_of(run), series(run, "checkpoint/blocked_s")
    durable = series(run, "checkpoint/durable_after_s")
    if len(pace[0]) < 2 and not len(blocked[0]):
        return None

    def draw(sheet: Sheet) -> None:
        axis = sheet.axes[0]
        if len(pace[0]):
            draw_line(axis, pace, sheet, colour=LIGHT["main"], label="seconds per step")
        if len(blocked[0]):
            axis.vlines(
                blocked[0], 0, blocked[1], color=LIGHT["bad"], lw=1.6, label="blocked by a checkpoint"
            )
            axis.plot(*blocked, "o", ms=3.5, color=LIGHT["bad"])
        if len(durable[0]):
            axis.plot(*durable, "v", ms=4, color=LIGHT["raw"], label="durable after")
        axis.set_ylim(bottom=0)
        axis.set_ylabel("seconds")
        legend(sheet)

    return Figure(
        name="checkpoint_stalls",
        title="Pace and checkpoint stalls",
        caption="A flat line is a steady pace; a peak is a step that waited, and a red stem on it says that "
        "a checkpoint was the reason.",
        draw=draw,
    )


def memory_figure(run: Run) -> Figure | None:
    """Memory of the host and of the device."""
    lines = (("memory/device_gib", "device", "main"), ("memory/host_gib", "host", "third"))
    if not has(run, *(name for name, _, _ in lines)):
        return None

    def draw(sheet: Sheet) -> None:
        draw_lines(sheet.axes[0], run, lines, sheet)
        sheet.axes[0].set_ylim(bottom=0)
        sheet.axes[0].set_ylabel("GiB")
        legend(sheet)

    return Figure(
        name="memory",
        title="Memory",
        caption="A line that keeps rising after the first hundred steps is a leak.",
        draw=draw,
    )


def pace_of(run: Run) -> Series:
    """Seconds per optimizer step: as logged, else from the times of the rows."""
    logged = series(run, "throughput/step_s")
    if len(logged[0]):
        return logged
    there = np.flatnonzero(np.isfinite(run.times) & np.isfinite(run.steps))
    steps, times = run.steps[there], run.times[there]
    apart = np.diff(steps) > 0
    return steps[1:][apart], np.diff(times)[apart] / np.diff(steps)[apart]
