"""The real trainer, with the target inline and running ahead on a side stream: step time and peak memory."""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer

from benchmarks.gpu.shapes import Shape
from dflash_lightning.data.datamodule import DFlashDataModule
from dflash_lightning.drafter.mask import Attention
from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.target.dispatch import PrefetchPolicy
from dflash_lightning.training.build import DrafterShape
from dflash_lightning.training.module import DFlashModule

WARM = 4
"""First steps, which compile and allocate, are not counted."""


class Clock(Callback):
    """Seconds of each optimizer step, the device included."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.strategy.root_device.type == "cuda":
            torch.cuda.synchronize()
        self.marks.append(time.perf_counter())

    @property
    def seconds(self) -> list[float]:
        return [b - a for a, b in zip(self.marks[WARM:], self.marks[WARM + 1 :], strict=False)]


def train(
    target: Path, store: Path, shape: Shape, *, depth: int, attention: Attention
) -> tuple[dict[str, float], DFlashModule]:
    """One epoch; `depth` 0 runs the target inline. Also returns the module, for what comes next."""
    clock = Clock()
    module = DFlashModule(
        str(target),
        prefetch=PrefetchPolicy(depth=depth),
        drafter=DrafterShape(num_layers=shape.drafter_layers),
        mask_token=shape.vocabulary - 1,
        block_size=shape.block_size,
        num_anchors=shape.num_anchors,
        attention=attention,
        activation_checkpointing=True,
    )
    plan = PlanConfig(edges=(shape.length,), max_tokens=shape.rows * shape.length, max_rows=shape.rows)
    data = DFlashDataModule(
        str(store),
        plan=plan,
        block_size=shape.block_size,
        num_anchors=shape.num_anchors,
        anchor_slots="fixed",
    )
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            accelerator="gpu" if cuda else "cpu",
            devices=1,
            precision="bf16-mixed",
            max_epochs=1,
            gradient_clip_val=1.0,
            callbacks=[clock],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            reload_dataloaders_every_n_epochs=1,
            num_sanity_val_steps=0,
            default_root_dir=folder,
        )
        trainer.fit(module, data)
    step = statistics.median(clock.seconds)
    peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0
    return {"step_s": step, "tokens_per_s": shape.rows * shape.length / step, "peak_gib": peak}, module
