"""What every rank runs with the drafter split by FSDP2: plain arguments in, plain values out."""

from pathlib import Path
from typing import Any

from lightning.pytorch.strategies import ModelParallelStrategy

from dflash_lightning.callbacks.grad_direction import GradDirection
from dflash_lightning.callbacks.held_out_decoding import HeldOutDecoding
from dflash_lightning.callbacks.prefetch_balance import PrefetchBalance
from dflash_lightning.training.build import TargetSettings
from dflash_lightning.training.start.dry_run import seat_of
from tests.ranks.jobs import Recorder, distribution
from tests.runs import toy_data, toy_module, toy_trainer

CALLBACKS = {each.__name__: each for each in (GradDirection, HeldOutDecoding, PrefetchBalance)}


def fsdp2(world: int = 2, tensor_parallel: int = 1) -> dict[str, Any]:
    strategy = ModelParallelStrategy(data_parallel_size=world, tensor_parallel_size=tensor_parallel)
    return {"devices": world * tensor_parallel, "strategy": strategy, "inference_mode": False}


def fit(
    root: str, target: str, store: str, *, sharded: bool = False, sharded_target: bool = False, **options: Any
) -> dict[str, Any]:
    """A fit, and what is comparable of it between ways to distribute: steps, validations, whole weights."""
    recorder = Recorder()
    how = {**(fsdp2() if sharded else distribution()), "inference_mode": False}
    trainer = toy_trainer(Path(root), callbacks=[recorder], **how, **options)
    module = toy_module(Path(target), target_settings=target_settings(sharded_target))
    trainer.fit(module, toy_data(Path(store)))
    parameters = {name: p.detach() for name, p in module.drafter.named_parameters()}
    layers = [p.detach() for p in module.target.parts.layers.parameters()]
    return {
        "steps": recorder.steps,
        "batches": recorder.batches,
        "validation": {n: float(v) for n, v in trainer.callback_metrics.items() if n.startswith("val/")},
        "weights": {n: p.full_tensor() if sharded else p for n, p in parameters.items()},
        "held": sum((p.to_local() if sharded else p).numel() for p in parameters.values()),
        "states": seat_of(trainer, module).states,
        "target_held": sum((p.to_local() if sharded_target else p).numel() for p in layers),
    }


def target_settings(sharded: bool) -> TargetSettings:
    return TargetSettings(dtype="float32", sharded=sharded)


def refused(
    root: str,
    target: str,
    store: str,
    *,
    tensor_parallel: int = 1,
    callback: str | None = None,
    module: dict[str, Any] | None = None,
    sharded_target: bool = False,
    **options: Any,
) -> str:
    """The message of a fit on two ranks that does not begin."""
    how = {**fsdp2(2 // tensor_parallel, tensor_parallel), **options}
    if sharded_target:
        how = {**distribution(), "inference_mode": False, **options}
    callbacks = [CALLBACKS[callback]()] if callback else []
    try:
        made = toy_module(Path(target), target_settings=target_settings(sharded_target), **(module or {}))
        trainer = toy_trainer(Path(root), callbacks=callbacks, **how)
        trainer.fit(made, toy_data(Path(store)))
    except ValueError as error:
        return str(error)
    return "not refused"
