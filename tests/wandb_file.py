"""Waits for an offline W&B run file and reads it back with the package's own reader."""

import time
from pathlib import Path
from typing import Any

from dflash_lightning.report.sources.wandb_log import read_wandb


def history(path: Path, *, timeout_s: float = 60.0) -> list[dict[str, Any]]:
    """The logged rows of a finished run. W&B's own process writes the file, and may still be at it."""
    deadline = time.monotonic() + timeout_s
    while not (log := read_wandb(path)).complete:
        assert time.monotonic() < deadline, f"{path} was never finished: {log.notes}"
        time.sleep(0.1)
    return log.rows


def run_files(folder: Path) -> list[Path]:
    """Run files below a save_dir: one per run, whatever the number of ranks."""
    return sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))
