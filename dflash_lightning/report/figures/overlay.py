"""Several runs in one picture each: the same value, one colour per run.

in    runs by their name in the legend
out   overlays (figures of which at least one run holds values)
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dflash_lightning.report.figures.loss import draw_line, fit_scale, legend
from dflash_lightning.report.figures.palette import LIGHT, LINES, ROLES
from dflash_lightning.report.figures.reading import Series, series, val_series
from dflash_lightning.report.figures.sheet import Figure, Sheet, as_label
from dflash_lightning.report.run import Run


@dataclass(frozen=True, kw_only=True)
class Value:
    """A value to compare."""

    name: str
    title: str
    unit: str
    caption: str
    wide: bool = False
    from_zero: bool = False


VALUES = (
    Value(
        name="train/loss",
        title="Loss per optimizer step",
        unit="loss (nats per token)",
        caption="Lower is better at the same step only if targets, data and block size are the same.",
        wide=True,
    ),
    Value(
        name="val/tau",
        title="Acceptance length on validation (tau)",
        unit="tokens per target pass",
        caption="The figure to compare drafters by: tokens committed per pass of the target.",
    ),
    Value(
        name="val/loss",
        title="Loss on validation",
        unit="loss (nats per token)",
        caption="Comparable only between runs that held out the same rows.",
    ),
    Value(
        name="train/tau",
        title="Acceptance length in training",
        unit="tokens per target pass",
        caption="On training blocks, so it may flatter a run that has seen its data often.",
    ),
    Value(
        name="train/grad_norm",
        title="Gradient norm before clipping",
        unit="norm",
        caption="A run that sits higher or jumps more is closer to its limit of learning rate.",
    ),
    Value(
        name="loss/spread",
        title="Spread of the loss between buckets",
        unit="loss",
        caption="Distance between the highest and the lowest bucket: what a change of mix can move.",
        from_zero=True,
    ),
    Value(
        name="direction/cosine",
        title="Cosine between consecutive gradients",
        unit="cosine",
        caption="Well below zero, steps undo each other.",
    ),
    Value(
        name="throughput/tokens_per_s",
        title="Throughput",
        unit="tokens per second",
        caption="Real tokens over all ranks.",
        from_zero=True,
    ),
    Value(
        name="checkpoint/blocked_s",
        title="Blocked by checkpoints",
        unit="seconds",
        caption="How long each checkpoint held up training.",
        from_zero=True,
    ),
)


def overlays(runs: Mapping[str, Run]) -> list[Figure]:
    """One figure for each value that any of the runs holds."""
    return [figure for value in VALUES if (figure := _overlay(runs, value)) is not None]


def _overlay(runs: Mapping[str, Run], value: Value) -> Figure | None:
    found = {name: _points(run, value.name) for name, run in runs.items()}
    if not any(len(points[0]) for points in found.values()):
        return None

    def draw(sheet: Sheet) -> None:
        axis = sheet.axes[0]
        for index, (name, points) in enumerate(found.items()):
            if not len(points[0]):
                continue
            before = len(axis.lines)
            draw_line(axis, points, sheet, colour=LIGHT[ROLES[index % len(ROLES)]], label=as_label(name))
            for line in axis.lines[before:]:
                line.set_linestyle(LINES[index // len(ROLES) % len(LINES)])
                if value.name.startswith(("val/", "checkpoint/")):
                    line.set(marker="o", markersize=4)
        fit_scale(axis, np.concatenate([points[1] for points in found.values()]))
        axis.set_ylabel(value.unit)
        if value.from_zero and axis.get_yscale() == "linear":
            axis.set_ylim(bottom=0)
        legend(sheet)

    name = "compare_" + value.name.replace("/", "_")
    return Figure(name=name, title=value.title, caption=value.caption, draw=draw, wide=value.wide)


def _points(run: Run, name: str) -> Series:
    return val_series(run, name) if name.startswith("val/") else series(run, name)
