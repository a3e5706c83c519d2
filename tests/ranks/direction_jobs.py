"""GradDirection on the toy, beside the exact gradients. Also called in the pytest process, as world 1."""

from pathlib import Path
from typing import Any

import torch
from lightning import Callback

from dflash_lightning.callbacks.grad_direction import GradDirection
from tests.ranks.jobs import KeepEvery, Plant, Recorder, distribution, read_rows
from tests.runs import toy_data, toy_module, toy_trainer


class MicroGradients(Callback):
    """What .grad holds behind every backward pass, flat."""

    def __init__(self) -> None:
        self.accumulated: list[torch.Tensor] = []

    def on_after_backward(self, trainer, pl_module):
        grads = [p.grad for p in pl_module.drafter.parameters() if p.grad is not None]
        self.accumulated.append(torch.cat([grad.flatten() for grad in grads]))


def fit(
    root: str,
    target: str,
    store: str,
    *,
    direction: dict[str, Any],
    resume: str | None = None,
    plant: tuple[int, str] | None = None,
    keep: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """One Trainer.fit on this rank: what was logged, and the gradients it was logged about."""
    recorder, micro = Recorder(), MicroGradients()
    callbacks: list[Callback] = [GradDirection(**direction), recorder, micro]
    callbacks += [Plant(*plant)] if plant else []
    callbacks += [KeepEvery(Path(root) / "kept")] if keep else []
    values = {"enable_checkpointing": keep, "max_epochs": 1, "log_every_n_steps": 1, **distribution()}
    trainer = toy_trainer(Path(root), callbacks=callbacks, **values | options)
    trainer.fit(toy_module(Path(target)), toy_data(Path(store)), ckpt_path=resume)
    log_dir = Path(trainer.log_dir)
    return {
        "rows": read_rows(log_dir) if trainer.is_global_zero else [],
        "batches": recorder.batches,
        "steps": recorder.steps,
        "gradients": [
            flat(step) / record["clip_factor"]
            for step, record in zip(recorder.gradients, recorder.steps, strict=True)
        ],
        "micro": micro.accumulated,
        "shown": {name: float(value) for name, value in trainer.callback_metrics.items()},
    }


def flat(gradients: dict[str, torch.Tensor]) -> torch.Tensor:
    """[entries]; empty behind a skipped step."""
    return torch.cat([torch.zeros(0), *(gradient.flatten() for gradient in gradients.values())])
