"""Figures of what the drafter is for: acceptance length, and accuracy per slot.

in    Run
out   Figure, or None where the logs hold no such values
"""

import re

import numpy as np

from dflash_lightning.report.figures.loss import draw_line, legend
from dflash_lightning.report.figures.palette import LIGHT, bucket_colours
from dflash_lightning.report.figures.reading import num_buckets, numbered, series, val_series
from dflash_lightning.report.figures.sheet import Figure, Sheet
from dflash_lightning.report.run import Run


def acceptance_figure(run: Run) -> Figure | None:
    """`train/tau`, `val/tau`, and tau per bucket."""
    train, held_out = series(run, "train/tau"), val_series(run, "val/tau")
    per_bucket = numbered(run, "acceptance/bucket_{i}")
    if not len(train[0]) and not len(held_out[0]):
        return None
    colours = bucket_colours(num_buckets(run))

    def draw(sheet: Sheet) -> None:
        axis = sheet.axes[0]
        for bucket, points in per_bucket.items():
            draw_line(axis, points, sheet, colour=colours[bucket], label=f"bucket {bucket}")
        for line in axis.lines:
            line.set(linewidth=0.9, alpha=0.7)
        if len(train[0]):
            draw_line(axis, train, sheet, colour=LIGHT["main"], label="training blocks")
        if len(held_out[0]):
            axis.plot(*held_out, "o-", ms=4.5, color=LIGHT["second"], label="validation", zorder=4)
        axis.set_ylabel("tokens per target pass")
        legend(sheet)

    return Figure(
        name="acceptance",
        title="Acceptance length (tau)",
        caption="Tokens committed per pass of the target if every guess were checked against the text: 1 is "
        "a drafter that never guesses right, and this line, not the loss, is the speed-up.",
        draw=draw,
        wide=True,
        num_buckets=num_buckets(run),
    )


def slots_figure(run: Run) -> Figure | None:
    """Accuracy per slot at the first and at the last validation."""
    found = {int(m[1]): m[0] for name in run.validation if (m := _SLOT.fullmatch(name))}
    slots = [slot for slot in sorted(found) if len(val_series(run, found[slot])[0])]
    if not slots:
        return None
    percent = [100 * val_series(run, found[slot])[1] for slot in slots]
    first_step, last_step = val_series(run, found[slots[0]])[0][[0, -1]]

    def draw(sheet: Sheet) -> None:
        axis, at = sheet.axes[0], np.array(slots)
        axis.bar(
            at, [values[-1] for values in percent], 0.62, color=LIGHT["main"], label=f"step {last_step:,.0f}"
        )
        if first_step < last_step:
            first = [values[0] for values in percent]
            axis.plot(at, first, "_", ms=13, mew=2, color=LIGHT["second"], label=f"step {first_step:,.0f}")
        axis.set_xticks(at[:: max(1, len(at) // 8)])
        axis.grid(visible=False, axis="x")
        axis.set_ylabel("right guesses (%)")
        legend(sheet)

    return Figure(
        name="accuracy_per_slot",
        title="Accuracy per slot on validation",
        caption="How often each position of a block is guessed right: later slots are harder, and one wrong "
        "slot makes all behind it useless, so the first bars matter most.",
        draw=draw,
        x_label="slot of the block",
    )


_SLOT = re.compile(r"val/accuracy_slot_(\d+)")
