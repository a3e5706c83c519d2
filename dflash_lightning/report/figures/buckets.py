"""The bucket mix over time.

in    Run
out   Figure, or None where the logs hold no such values
"""

import numpy as np

from dflash_lightning.report.figures.loss import draw_line, legend
from dflash_lightning.report.figures.palette import LIGHT, bucket_colours
from dflash_lightning.report.figures.reading import micro_buckets, num_buckets, numbered, series
from dflash_lightning.report.figures.sheet import Figure, Sheet
from dflash_lightning.report.run import FloatArray, MicroLog, Run


def mix_figure(run: Run) -> Figure | None:
    """Share of each bucket, stacked, with the distance from the plan's mix below it."""
    logged, distance = numbered(run, "batch/bucket_{i}_pct"), series(run, "batch/mix_distance")
    if not logged and not micro_buckets(run):
        return None
    colours = bucket_colours(num_buckets(run))

    def draw(sheet: Sheet) -> None:
        axis, bins = sheet.axes[0], sheet.size.bins // 3
        if logged:
            steps, shares = _logged_shares(run, bins)
        else:
            assert run.micro is not None
            steps, shares = _counted_shares(run.micro, micro_buckets(run), min(bins, 40))
        labels = [f"bucket {bucket}" for bucket in logged or micro_buckets(run)]
        shown = [colours[bucket] for bucket in logged or micro_buckets(run)]
        axis.stackplot(steps, shares, labels=labels, colors=shown, alpha=0.85, lw=0)
        axis.set_ylim(0, 100)
        axis.set_ylabel("batches (%)")
        if len(distance[0]):
            draw_line(sheet.axes[1], distance, sheet, colour=LIGHT["second"], label="")
            sheet.axes[1].set_ylim(bottom=0)
            sheet.axes[1].set_ylabel("distance")
        legend(sheet)

    return Figure(
        name="bucket_mix",
        title="Bucket mix",
        caption="Straight layers mean that every stretch of training saw the same mix of lengths; below "
        "them, the distance of single windows from the mix of the plan, 0 at best and 1 at worst."
        if len(distance[0])
        else "Straight layers mean that every stretch of training saw the same mix of lengths; a layer that "
        "swells or vanishes changes the loss without any change in the model.",
        draw=draw,
        panels=2 if len(distance[0]) else 1,
        num_buckets=num_buckets(run),
    )


def _logged_shares(run: Run, bins: int) -> tuple[FloatArray, FloatArray]:
    logged = numbered(run, "batch/bucket_{i}_pct")
    steps = np.unique(np.concatenate([points[0] for points in logged.values()]))
    grid = steps[np.linspace(0, len(steps) - 1, min(len(steps), bins)).astype(int)]
    return grid, np.array([np.interp(grid, *points) for points in logged.values()])


def _counted_shares(micro: MicroLog, buckets: list[int], bins: int) -> tuple[FloatArray, FloatArray]:
    order = np.argsort(micro.step, kind="stable")
    stretches = np.array_split(order, max(1, min(bins, len(order) // 20)))
    steps = np.array([micro.step[stretch].mean() for stretch in stretches])
    counts = [[(micro.bucket[stretch] == bucket).mean() for stretch in stretches] for bucket in buckets]
    return steps, 100 * np.array(counts)
