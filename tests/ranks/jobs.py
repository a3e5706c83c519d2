"""What every rank runs: real Trainer runs on the toy. Also called in the pytest process, as world 1.

Plain arguments in, plain values out, so that they travel between processes.
"""

import csv
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from lightning import Callback
from lightning.pytorch.callbacks import Checkpoint

from dflash_lightning.callbacks.acceptance import Acceptance
from dflash_lightning.callbacks.bucket_mix import BucketMix
from dflash_lightning.callbacks.grad_norm import GradNorm
from dflash_lightning.callbacks.held_out_decoding import HeldOutDecoding
from dflash_lightning.callbacks.loss_bands import LossBands
from dflash_lightning.callbacks.micro_batches import MicroBatches
from dflash_lightning.callbacks.step_guard import StepGuard
from dflash_lightning.callbacks.throughput import Throughput
from dflash_lightning.training.watch.held_out_decoding import Decoding
from tests.runs import toy_data, toy_module, toy_trainer


class Recorder(Callback):
    """Everything that a step is made of and does, for comparison with another run."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
        self.gradients: list[dict[str, torch.Tensor]] = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        tokens, _ = batch
        self.batches.append(
            {
                "epoch": trainer.current_epoch,
                "ids": tokens.sample_ids.tolist(),
                "anchors": tokens.anchors.tolist(),
                "bucket": tokens.bucket,
                "lengths": tokens.lengths.tolist(),
                "padded_length": tokens.input_ids.shape[1],
            }
        )

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if not pl_module.step_finished:
            return
        record = asdict(pl_module.last_step) | {"lr": pl_module.last_lr, "epoch": trainer.current_epoch}
        totals = {**pl_module.last_totals.ratios(), "global_step": trainer.global_step}
        state = trainer.optimizers[0].state
        counts = {int(entry["step"]) for entry in state.values()}
        self.steps.append(record | totals | {"optimizer_steps": sorted(counts), "weights": digest(pl_module)})
        self.gradients.append(
            {name: p.grad.clone() for name, p in pl_module.drafter.named_parameters() if p.grad is not None}
        )


def digest(module) -> list[float]:
    return [float(p.detach().double().sum()) for p in module.drafter.parameters()]


class Plant(Callback):
    """Spoils the taps of one sample, or makes the head so sharp that its losses are enormous, but finite."""

    def __init__(self, sample_id: int, kind: str) -> None:
        self.sample_id = sample_id
        self.kind = kind

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        tokens, states = batch
        rows = tokens.sample_ids == self.sample_id
        if self.kind in ("nan", "inf"):
            states.taps[rows] = float(self.kind)
        self.sharp = self.kind == "sharp" and bool(rows.any())
        if self.sharp:
            pl_module.target.head.mul_(256.0)  # a power of two: division gives the same numbers back

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if self.sharp:
            pl_module.target.head.div_(256.0)


class BigGradient(Callback):
    """An overflow in the gradients alone: every loss of the window is a number."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        if trainer.global_rank == self.rank:
            next(p for p in pl_module.drafter.parameters() if p.grad is not None).grad[0] = float("inf")


class KeepEvery(Checkpoint):
    """A checkpoint behind every optimizer step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if pl_module.step_finished:
            trainer.save_checkpoint(self.folder / f"step={trainer.global_step}.ckpt")


def distribution() -> dict[str, Any]:
    """Under torchrun all ranks, else this process."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return {}
    return {"devices": int(os.environ["WORLD_SIZE"]), "strategy": "ddp"}


def fit(
    root: str,
    target: str,
    store: str,
    *,
    resume: str | None = None,
    plant: tuple[int, str] | None = None,
    big_gradient: int | None = None,
    keep: bool = False,
    logging: bool = True,
    observe: bool = False,
    extra: Sequence[Callback] = (),
    module: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """One Trainer.fit on this rank; what it was made of, what each step did, what it left behind."""
    folder, recorder = Path(root), Recorder()
    callbacks: list[Callback] = [GradNorm(), BucketMix(window_steps=3)] if logging else []
    callbacks += [LossBands(), MicroBatches(), StepGuard(), Throughput(), Acceptance()] if observe else []
    callbacks += [Plant(*plant)] if plant else []
    callbacks += [BigGradient(big_gradient)] if big_gradient is not None else []
    callbacks += [*extra, recorder, *([KeepEvery(folder / "kept")] if keep else [])]
    options = {"enable_checkpointing": keep, **distribution(), **options}
    trainer = toy_trainer(folder, callbacks=callbacks, **options)
    model, source = toy_module(Path(target), **(module or {})), toy_data(Path(store), **(data or {}))
    error = None
    try:
        trainer.fit(model, source, ckpt_path=resume)
    except RuntimeError as stopped:
        error = str(stopped)
    log_dir = Path(trainer.log_dir)  # a collective: asked for on all ranks, once
    return {
        "batches": recorder.batches,
        "steps": recorder.steps,
        "gradients": recorder.gradients,
        "weights": {name: value.clone() for name, value in model.drafter.state_dict().items()},
        "moments": _moments(trainer),
        "position": asdict(source.position),
        "global_step": trainer.global_step,
        "skipped": model.guard.state_dict(),
        "rows": read_rows(log_dir) if trainer.is_global_zero else [],
        "micro": read_lines(folder / f"micro_batches.rank{trainer.global_rank}.jsonl"),
        "log_dir": str(log_dir),
        "error": error,
    }


def validate(
    root: str,
    target: str,
    store: str,
    *,
    module: Any = None,
    data: Any = None,
    decode: bool = False,
    **options: Any,
) -> dict[str, float]:
    """What Trainer.validate reports on this rank."""
    callbacks = [HeldOutDecoding(decoding=Decoding(prompts=9, max_new_tokens=12))] if decode else []
    trainer = toy_trainer(Path(root), callbacks=callbacks, **distribution(), **options)
    model, source = toy_module(Path(target), **(module or {})), toy_data(Path(store), **(data or {}))
    (values,) = trainer.validate(model, source, verbose=False)
    return dict(values)


def read_rows(log_dir: Path) -> list[dict[str, str]]:
    """What was logged, row by row. A column that another row brought in is left out."""
    path = log_dir / "metrics.csv"
    rows = csv.DictReader(path.read_text().splitlines()) if path.exists() else []
    return [{name: value for name, value in row.items() if value} for row in rows]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def without_times(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows without what differs from machine to machine."""
    timed = ("throughput/", "time/", "memory/")
    return [{n: v for n, v in row.items() if not n.startswith(timed)} for row in rows]


def logged(rows: list[dict[str, str]], name: str) -> list[float]:
    """The values of one metric, in the order of the log."""
    return [float(row[name]) for row in rows if row.get(name)]


def _moments(trainer) -> dict[Any, dict[str, torch.Tensor]]:
    state = trainer.optimizers[0].state_dict()["state"] if trainer.optimizers else {}
    return {key: {name: value.clone() for name, value in entry.items()} for key, entry in state.items()}


def fit_from_own_store(root: str, target: str, stores: str) -> dict[str, Any]:
    """Each rank opens a folder of its own, as nodes without a shared disk do."""
    return fit(root, target, f"{stores}/{os.environ['RANK']}/store")
