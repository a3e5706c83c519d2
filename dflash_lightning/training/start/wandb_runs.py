"""One W&B run from its first start to its last resume, over `train/step`.

in    the run's config before anything is built; the logger when the run begins
out   the id that the run's folder remembers; W&B charts with our x axis
law   the user's own id (`id`, `version` or WANDB_RUN_ID) wins; without --ckpt_path it is a new run
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import WandbLogger

FILE = "wandb_run_id.txt"


def resume_wandb(loggers: list[Any], folder: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Give the remembered id to the first WandbLogger of `loggers` (config entries) that names none."""
    path = folder / FILE
    if not path.is_file() or environment.get("WANDB_RUN_ID"):
        return
    entries = (entry for entry in loggers if hasattr(entry, "get"))  # others are true, false and null
    ours = [entry for entry in entries if str(entry.get("class_path", "")).endswith("WandbLogger")]
    if ours and not (ours[0]["init_args"].get("id") or ours[0]["init_args"].get("version")):
        ours[0]["init_args"]["id"] = path.read_text().strip()


def begin_wandb(logger: WandbLogger, folder: Path) -> None:
    """Open the run, remember its id, and draw everything over `train/step`. On rank 0 only."""
    run = logger.experiment
    # Lightning has chosen its own step as the axis of everything; ours goes along with each value sent.
    run.define_metric("train/step")
    run.define_metric("*", step_metric="train/step", step_sync=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(f"{run.id}\n")
