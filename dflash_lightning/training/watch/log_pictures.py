"""Tables and pictures into whatever logger a run has.

in    rows, or a function that draws on a matplotlib Figure
out   W&B: a Table, an Image; TensorBoard: text, an image; CSV: files beside metrics.csv
law   only rank 0 builds and draws anything; a logger that can do neither is left out
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from lightning import Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger, WandbLogger
from matplotlib import image
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

Draw = Callable[[Figure], None]
Row = Sequence[float | str]


def log_table(trainer: Trainer, key: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Give `rows` to every logger under `key`, like "mix/epoch"; shown at the present step."""
    if not trainer.is_global_zero:
        return
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger):
            logger.log_table(key, columns=list(columns), data=[list(row) for row in rows])
        elif isinstance(logger, TensorBoardLogger):
            logger.experiment.add_text(key, as_markdown(columns, rows), trainer.global_step)
        elif isinstance(logger, CSVLogger):
            path = _path(trainer, Path(logger.log_dir) / "tables", key, "csv")
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([columns, *rows])


def log_figure(trainer: Trainer, key: str, draw: Draw, *, inches: tuple[float, float] = (8.0, 4.5)) -> None:
    """Draw once, without a display, and give the picture to every logger under `key`."""
    kinds = (WandbLogger, TensorBoardLogger, CSVLogger)
    if not trainer.is_global_zero or not any(isinstance(logger, kinds) for logger in trainer.loggers):
        return
    figure = Figure(figsize=inches, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    draw(figure)
    canvas.draw()
    pixels = np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[..., :3])  # [height, width, RGB]
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger):
            logger.log_image(key, [pixels])
        elif isinstance(logger, TensorBoardLogger):
            logger.experiment.add_image(key, pixels, trainer.global_step, dataformats="HWC")
        elif isinstance(logger, CSVLogger):
            image.imsave(_path(trainer, Path(logger.log_dir) / "pictures", key, "png"), pixels)


def as_markdown(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """A table that TensorBoard's text page shows as one."""
    lines = [columns, ["---"] * len(columns), *([_shown(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(cell: float | str) -> str:
    return cell if isinstance(cell, str) else f"{cell:.6g}"


def _path(trainer: Trainer, folder: Path, key: str, kind: str) -> Path:
    """FOLDER/KEY-EPOCH.KIND; epochs are counted from 0, as in metrics.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{key.replace('/', '_')}-{trainer.current_epoch}.{kind}"
