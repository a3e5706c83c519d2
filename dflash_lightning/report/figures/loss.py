"""Figures of the loss: per optimizer step, per bucket, raw beside per window, and its distribution.

in    Run
out   Figure, or None where the logs hold no such values
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dflash_lightning.report.figures.palette import LIGHT, bucket_colours
from dflash_lightning.report.figures.reading import (
    Series,
    has,
    micro_buckets,
    num_buckets,
    numbered,
    series,
    val_series,
)
from dflash_lightning.report.figures.sheet import Figure, Sheet
from dflash_lightning.report.figures.thin import envelope, finite, own_band, sample, spread
from dflash_lightning.report.run import FloatArray, MicroLog, Run

ENOUGH_TO_COUNT = 100
"""Values below which a histogram shows single steps, not levels."""


def loss_figure(run: Run) -> Figure | None:
    """`train/loss` and `val/loss`."""
    train, held_out = series(run, "train/loss"), val_series(run, "val/loss")
    if not len(train[0]):
        return None

    def draw(sheet: Sheet) -> None:
        axis = sheet.axes[0]
        draw_line(axis, train, sheet, colour=LIGHT["main"], label="training")
        if len(held_out[0]):
            axis.plot(*held_out, "o", ms=4.5, color=LIGHT["second"], label="validation", zorder=4)
        fit_loss(axis, train[1])
        legend(sheet)

    return Figure(
        name="loss",
        title="Loss per optimizer step",
        caption="Each point is the weighted mean over every token of all steps since the point before, so it "
        "moves only when training does; where points are dense the pale band spans lowest to highest.",
        draw=draw,
        wide=True,
    )


def bands_figure(run: Run) -> Figure | None:
    """Loss per bucket, each with the band of what is usual for it."""
    per_bucket = numbered(run, "loss/bucket_{i}") or _micro_per_bucket(run)
    if not per_bucket:
        return None
    colours = bucket_colours(num_buckets(run))

    def draw(sheet: Sheet) -> None:
        axis = sheet.axes[0]
        for bucket, points in per_bucket.items():
            band = own_band(*points, min(40, max(2, len(points[0]) // 8)))
            axis.fill_between(band.steps, band.low, band.high, color=colours[bucket], alpha=0.2, lw=0)
            draw_line(axis, points, sheet, colour=colours[bucket], label=f"bucket {bucket}")
        axis.set_ylabel("loss (nats per token)")
        legend(sheet)

    return Figure(
        name="loss_per_bucket",
        title="Loss per bucket",
        caption="A bucket is a range of sequence lengths: lines that keep their distance are levels of easy "
        "and hard lengths and harmless; one that leaves its shaded band (three times its noise) is not.",
        draw=draw,
        wide=True,
        num_buckets=num_buckets(run),
    )


def raw_figure(run: Run) -> Figure | None:
    """Single micro-batches, coloured by bucket, behind the per-window curve."""
    micro, window = run.micro, series(run, "train/loss")
    if micro is None or not np.isfinite(micro.loss).any():
        return None
    groups = _micro_per_bucket(run) or {-1: finite(micro.step.astype(np.float64), micro.loss)}
    colours = {-1: LIGHT["raw"], **dict(enumerate(bucket_colours(num_buckets(run))))}

    def draw(sheet: Sheet) -> None:
        axis = sheet.axes[0]
        dots = max(60, 3 * sheet.size.width // (2 * len(groups)))
        for bucket, points in groups.items():
            label = "one micro-batch" if bucket < 0 else f"bucket {bucket}"
            drawn = sample(*points, dots)
            axis.plot(*drawn, ".", ms=3.6, alpha=0.75, mew=0, color=colours[bucket])
            axis.plot([], [], ".", ms=8, mew=0, color=colours[bucket], label=label)  # seen in the legend
        if len(window[0]):
            axis.plot(
                *envelope(*window, sheet.size.bins), color=LIGHT["ink"], lw=1.8, label="optimizer steps"
            )
        fit_loss(axis, micro.loss[np.isfinite(micro.loss)])
        legend(sheet)

    return Figure(
        name="raw_loss",
        title="Single micro-batches against what the optimizer saw",
        caption="Dots are single micro-batches, the line is the mean of the whole window behind each step: "
        "layers of colour with a calm line mean that the movement is the mix of lengths, not the training.",
        draw=draw,
        wide=True,
        num_buckets=num_buckets(run),
    )


def levels_figure(run: Run) -> Figure | None:
    """How the loss is distributed around its own trend, by bucket where tagged."""
    micro = run.micro
    steps, loss = (
        finite(micro.step.astype(np.float64), micro.loss) if micro is not None else series(run, "train/loss")
    )
    if len(loss) < ENOUGH_TO_COUNT:
        return None
    trend = spread(steps, loss, max(2, min(20, len(loss) // 20)))
    groups = _micro_per_bucket(run) or {-1: (steps, loss)}
    around = {bucket: y - np.interp(x, trend.steps, trend.middle) for bucket, (x, y) in groups.items()}
    every = np.concatenate(list(around.values()))
    low, high = np.quantile(every, (0.005, 0.995))
    edges = np.linspace(low, high, 41)
    colours = {-1: LIGHT["main"], **dict(enumerate(bucket_colours(num_buckets(run))))}

    def draw(sheet: Sheet) -> None:
        axis = sheet.axes[0]
        axis.hist(
            [np.clip(values, low, high) for values in around.values()],
            bins=list(edges),
            stacked=True,
            color=[colours[bucket] for bucket in around],
            label=["values" if bucket < 0 else f"bucket {bucket}" for bucket in around],
        )
        axis.set_ylabel("values")
        if len(around) > 1:
            legend(sheet)

    return Figure(
        name="loss_levels",
        title="Levels of the loss",
        caption="Values around their own trend: one hill is noise, several hills are several levels, and "
        "where colours are given they say whether the levels are the buckets.",
        draw=draw,
        num_buckets=num_buckets(run),
        x_label="loss minus its running median",
    )


def draw_line(axis: Any, points: Series, sheet: Sheet, *, colour: str, label: str) -> None:
    """A line; beyond what the width can show, its median over its lowest-to-highest envelope."""
    if len(points[0]) <= 2 * sheet.size.bins:
        axis.plot(*points, color=colour, label=label, **_lone(points))
        return
    axis.plot(*envelope(*points, sheet.size.bins), color=colour, lw=0.8, alpha=0.38)
    middle = spread(*points, sheet.size.bins // 2)
    axis.plot(middle.steps, middle.middle, color=colour, label=label)


def draw_lines(axis: Any, run: Run, lines: Sequence[tuple[str, str, str]], sheet: Sheet) -> None:
    """A line for each (name, label, role) that was logged; the role gives its colour."""
    for name, label, role in lines:
        if has(run, name):
            draw_line(axis, series(run, name), sheet, colour=LIGHT[role], label=label)


def fit_loss(axis: Any, values: FloatArray) -> None:
    """Label and scale of an axis of losses."""
    axis.set_ylabel("loss (nats per token)")
    fit_scale(axis, values)


def fit_scale(axis: Any, values: FloatArray) -> None:
    """A logarithmic axis where one value would press the rest flat; the highest value is never cut off."""
    if values.min() > 0 and values.max() > 8 * np.median(values):
        axis.set_yscale("log")


def legend(sheet: Sheet) -> None:
    """One legend above the first panel."""
    axis = sheet.axes[0]
    labels = axis.get_legend_handles_labels()[1]
    if labels:
        room = sheet.size.width // (7 * max(map(len, labels)) + 50)
        rows = math.ceil(len(labels) / max(1, room))
        columns = math.ceil(len(labels) / rows)
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, borderpad=0.2)


def _lone(points: Series) -> dict[str, Any]:
    return {"marker": "o", "ms": 4} if len(points[0]) < 3 else {}


def _micro_per_bucket(run: Run) -> dict[int, Series]:
    micro: MicroLog | None = run.micro
    if micro is None:
        return {}
    masks = {bucket: micro.bucket == bucket for bucket in micro_buckets(run)}
    return {
        bucket: finite(micro.step[mask].astype(np.float64), micro.loss[mask])
        for bucket, mask in masks.items()
    }
