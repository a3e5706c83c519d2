"""What every rank runs with the drafter split by FSDP2: plain arguments in, plain values out."""

from pathlib import Path
from typing import Any

from lightning.pytorch.strategies import ModelParallelStrategy

from dflash_lightning.callbacks.grad_direction import GradDirection
from tests.ranks.jobs import Recorder, distribution
from tests.runs import toy_data, toy_module, toy_trainer


def fsdp2(world: int = 2, tensor_parallel: int = 1) -> dict[str, Any]:
    strategy = ModelParallelStrategy(data_parallel_size=world, tensor_parallel_size=tensor_parallel)
    return {"devices": world * tensor_parallel, "strategy": strategy, "inference_mode": False}


def fit(root: str, target: str, store: str, *, sharded: bool, **options: Any) -> dict[str, Any]:
    """A fit, and what is comparable of it between ways to distribute: steps, validations, whole weights."""
    recorder = Recorder()
    how = fsdp2() if sharded else distribution()
    trainer = toy_trainer(Path(root), callbacks=[recorder], **how, **options)
    module = toy_module(Path(target))
    trainer.fit(module, toy_data(Path(store)))
    parameters = {name: p.detach() for name, p in module.drafter.named_parameters()}
    return {
        "steps": recorder.steps,
        "batches": recorder.batches,
        "validation": {n: float(v) for n, v in trainer.callback_metrics.items() if n.startswith("val/")},
        "weights": {n: p.full_tensor() if sharded else p for n, p in parameters.items()},
        "held": sum((p.to_local() if sharded else p).numel() for p in parameters.values()),
    }


def refused(
    root: str, target: str, store: str, *, tensor_parallel: int = 1, direction: bool = False, **options: Any
) -> str:
    """The message of a fit on two ranks that does not begin."""
    how = {**fsdp2(2 // tensor_parallel, tensor_parallel), **options}
    trainer = toy_trainer(Path(root), callbacks=[GradDirection()] if direction else [], **how)
    try:
        trainer.fit(toy_module(Path(target)), toy_data(Path(store)))
    except ValueError as error:
        return str(error)
    return "not refused"
