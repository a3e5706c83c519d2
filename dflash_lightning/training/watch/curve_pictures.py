"""What the loss bands and the validation look like, drawn on a matplotlib Figure that is handed in."""

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure

from dflash_lightning.training.watch.loss_watch import BandRow
from dflash_lightning.training.watch.loss_words import range_of

Draw = Callable[[Figure], None]


def band_picture(rows: Sequence[BandRow], edges: Sequence[int]) -> Draw:
    """Mean loss of each bucket over the optimizer steps, its band behind it."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for bucket in sorted({int(row[1]) for row in rows}):
            steps, _, losses, low, high = zip(*(row for row in rows if row[1] == bucket), strict=True)
            color = f"C{bucket % 10}"
            axes.fill_between(steps, low, high, color=color, alpha=0.12, linewidth=0)
            axes.plot(steps, losses, color=color, marker=".", markersize=3, label=range_of(bucket, edges))
        axes.set(xlabel="optimizer step", ylabel="loss", title="Loss by bucket, and its band")
        axes.legend(fontsize="small", frameon=False)

    return draw


def slot_picture(accuracies: Sequence[float]) -> Draw:
    """Accuracy of slots 1, 2, ... of a block, teacher-forced."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.bar(range(1, len(accuracies) + 1), accuracies, color="C0")
        axes.set(xlabel="slot", ylabel="accuracy", ylim=(0, 1), title="Validation accuracy by slot")

    return draw
