"""Every figure the report knows, in reading order, and what would have to be logged for the absent ones.

in    Run
out   figures_of, missing_from
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from dflash_lightning.report.figures.acceptance import acceptance_figure, slots_figure
from dflash_lightning.report.figures.buckets import mix_figure
from dflash_lightning.report.figures.loss import bands_figure, levels_figure, loss_figure, raw_figure
from dflash_lightning.report.figures.machine import (
    memory_figure,
    stalls_figure,
    throughput_figure,
    time_figure,
)
from dflash_lightning.report.figures.progress import (
    direction_figure,
    gradient_figure,
    group_figure,
    rate_figure,
)
from dflash_lightning.report.figures.sheet import Figure, Mark
from dflash_lightning.report.run import Run

CATALOGUE: tuple[tuple[Callable[[Run], Figure | None], str, str], ...] = (
    (loss_figure, "loss", ""),
    (bands_figure, "loss per bucket", "LossBands"),
    (raw_figure, "single micro-batches", "MicroBatches"),
    (acceptance_figure, "acceptance", ""),
    (gradient_figure, "gradient norm", "GradNorm"),
    (group_figure, "gradient norm per group", "GradNorm with groups: true"),
    (direction_figure, "direction of the gradient", "GradDirection"),
    (mix_figure, "bucket mix", "BucketMix"),
    (levels_figure, "levels of the loss", ""),
    (throughput_figure, "throughput", "Throughput"),
    (time_figure, "time shares", "Throughput"),
    (stalls_figure, "pace and checkpoint stalls", "Throughput"),
    (slots_figure, "accuracy per slot", ""),
    (memory_figure, "memory", "Throughput"),
    (rate_figure, "learning rate", ""),
)
"""(builder, what it shows, the callback that logs it; none where fit logs it by itself)"""


def figures_of(run: Run, *, marks: Sequence[Mark] = ()) -> list[Figure]:
    """What the logs allow, with the steps to look at marked."""
    built = [build(run) for build, _, _ in CATALOGUE]
    return [replace(figure, marks=tuple(marks)) for figure in built if figure is not None]


def missing_from(run: Run) -> dict[str, str]:
    """Figures that cannot be drawn -> the callback whose values are absent, "" where fit itself logs them."""
    return {shown: callback for build, shown, callback in CATALOGUE if build(run) is None}
