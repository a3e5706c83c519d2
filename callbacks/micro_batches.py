"""One line for every single micro-batch: for a close look, and to recompute what is logged."""

import json
import math
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from dflash_lightning.training.module import DFlashModule
from dflash_lightning.training.window_sums import Sums

FIELDS = [field.name for field in fields(Sums)]
Line = dict[str, float | int | bool | None]


class MicroBatches(Callback):
    """Appends to `folder`/micro_batches.rank<r>.jsonl, one JSON object a micro-batch, at each optimizer step:
    step, micro_step, rank, bucket, samples, seq_len (padded length), tokens (real ones), loss (its own mean),
    loss_sum, weight, correct, supervised, streak, blocks, time (unix seconds), and applied, which is false in
    a skipped step. A number that is not finite is null, and so is the mean of a micro-batch without weight.

    A resumed run appends: of steps that come twice, the later lines count. A fresh run starts a new file.

    A curve of single micro-batches jumps by construction: each comes from one bucket, while an optimizer step
    sees the whole mix. Judge a run by `train/*` and `loss/*`.

    Args:
        folder: Where to write; null: the run's default_root_dir.
        log: Also give micro/loss, micro/bucket and micro/seq_len of rank 0's micro-batches to the loggers.
    """

    def __init__(self, folder: str | None = None, log: bool = False) -> None:
        self.folder = folder
        self._to_loggers = log  # Lightning puts a method of its own at `callback.log`
        self._times: list[float] = []

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        folder = Path(self.folder or trainer.default_root_dir)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"micro_batches.rank{trainer.global_rank}.jsonl"
        self._times = []
        if not pl_module.data.position.steps:
            self._path.write_text("")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, DFlashModule)
        self._times.append(time.time())
        if not pl_module.step_finished:
            return
        lines = _lines(pl_module, [self._times[turn] for turn in pl_module.window_sums.turns])
        self._times = []
        with self._path.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        if self._to_loggers:
            for line in lines:
                shown = {f"micro/{name}": line[name] for name in ("loss", "bucket", "seq_len")}
                numbers = {name: float(value) for name, value in shown.items() if value is not None}
                for logger in trainer.loggers:
                    logger.log_metrics(numbers, step=pl_module.data.position.steps - 1)


def _lines(module: DFlashModule, times: list[float]) -> list[Line]:
    """This rank's micro-batches of the window that has just ended; one read from the device."""
    step, facts, trainer = module.last_step, module.last_window, module.trainer
    assert step is not None
    assert facts is not None
    values = torch.stack(module.window_sums.finished).tolist()
    lines = []
    for micro_step, (sums, moment) in enumerate(zip(values, times, strict=True)):
        at = micro_step * trainer.world_size + trainer.global_rank
        named = dict(zip(FIELDS, sums, strict=True))
        lines.append(
            {
                "step": step.step,
                "micro_step": micro_step,
                "rank": trainer.global_rank,
                "bucket": int(facts.bucket[at]),
                "samples": int(facts.samples[at]),
                "seq_len": int(facts.padded_length[at]),
                "tokens": int(facts.tokens[at]),
                "loss": _finite(named["micro_loss"]) if named["weight"] else None,
                "loss_sum": _finite(named["loss"]),
                "weight": _finite(named["weight"]),
                **{name: int(named[name]) for name in ("correct", "supervised", "streak", "blocks")},
                "time": round(moment, 3),
                "applied": not step.skipped,
            }
        )
    return lines


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
