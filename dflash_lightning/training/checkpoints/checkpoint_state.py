"""What is saved of a run: Lightning's own checkpoint, and with it step, metrics and facts.

law   no collective: one process may save without the others
"""

from typing import Any

from lightning import Trainer

from dflash_lightning.checkpoint.job import Kind, Retention, SaveJob
from dflash_lightning.training.checkpoints.split_state import dump_split, is_split
from dflash_lightning.training.module import DFlashModule

_SHOWN = ("train/", "val/")


def dump_state(trainer: Trainer) -> dict[str, Any]:
    """The very dictionary that Trainer.save_checkpoint would write: storages of the run itself, no copy; of a
    split drafter this rank's part."""
    if is_split(trainer.strategy):
        return dump_split(trainer)
    return trainer._checkpoint_connector.dump_checkpoint(weights_only=False)


def make_job(
    trainer: Trainer, module: DFlashModule, kind: Kind, run_id: str, retention: Retention
) -> SaveJob:
    position = module.data.position
    return SaveJob(
        step=position.steps,
        epoch=position.epoch,
        kind=kind,
        run_id=run_id,
        must_keep=kind != "step",
        metrics=metrics_of(trainer, module),
        facts={
            "plan_digest": module.data.epochs.plan(position.epoch).digest,
            "world_size": trainer.world_size,
            "target": module.target_name,
        },
        retention=retention,
    )


def metrics_of(trainer: Trainer, module: DFlashModule) -> dict[str, float]:
    """Logged values of this step; those of a validation only where these weights were validated."""
    values = {name: float(value) for name, value in trainer.callback_metrics.items()}
    values |= {name: float(value) for name, value in getattr(module, "due", {}).items()}
    fresh = module.validated_at == module.data.position.steps
    shown = _SHOWN if fresh else _SHOWN[:1]
    return {name: value for name, value in values.items() if name.startswith(shown)}


def value_of(trainer: Trainer, monitor: str) -> float:
    """Raises: ValueError naming what there is, where the validation has no such value."""
    if monitor not in trainer.callback_metrics:
        known = ", ".join(sorted(name for name in trainer.callback_metrics if name.startswith("val/")))
        raise ValueError(f"S3Checkpoint: no validation gives {monitor!r}; monitor one of {known or 'none'}")
    return float(trainer.callback_metrics[monitor])
