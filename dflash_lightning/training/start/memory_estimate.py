"""The memory that `plan` expects of a rank, told by a run before it loads anything.

in    a run whose data is set up; of its target, the config is read
out   lines for people
law   the figures are those that `plan` prints for the same settings
"""

from dataclasses import asdict

import torch

from dflash_lightning.plan_view.geometry import Geometry, read_geometry
from dflash_lightning.plan_view.model_settings import ModelSettings
from dflash_lightning.plan_view.resources import Memory, estimate_memory
from dflash_lightning.plan_view.table import memory_rows
from dflash_lightning.target.loading import load_config
from dflash_lightning.training.module import DFlashModule


def memory_lines(module: DFlashModule, *, accumulate: int) -> list[str]:
    """A heading and the rows of `plan`; what of the target is elsewhere is said, and still in the figures.

    Args:
        accumulate: Batches of a rank behind one optimizer step of the run that is planned.

    Raises: FileNotFoundError where there is no such target, as loading it would.
    """
    rows = memory_rows(_estimate(module, accumulate))
    if elsewhere := _elsewhere(module):
        rows.append(("of the target", elsewhere))
    width = max(len(name) for name, _ in rows)
    return ["memory of a rank, estimated", *(f"  {name:<{width}}  {value}" for name, value in rows)]


def _estimate(module: DFlashModule, accumulate: int) -> Memory | str:
    load_config(module.target_name)  # downloads it where it is not here; below it is only looked for
    settings = model_settings_of(module)
    geometry = read_geometry(settings, block_size=module.block_size)
    if not isinstance(geometry, Geometry):
        return geometry
    return estimate_memory(
        module.data.epochs.plan(0),
        module.data.epochs.samples,
        geometry,
        settings,
        window_batches=module.trainer.world_size * accumulate,
    )


def model_settings_of(module: DFlashModule) -> ModelSettings:
    """What decides memory, as plan_view reads it from the YAML."""
    target, trainer = module.target_settings, module.trainer
    return ModelSettings(
        target=module.target_name,
        shape=asdict(module.shape),
        target_bytes=getattr(torch, target.dtype).itemsize,
        target_ranks=trainer.num_devices if target.sharded else 1,
        compute_bytes=4 if str(trainer.precision).startswith("32") else 2,
        dense_mask=module.attention == "sdpa",
        activation_checkpointing=module.activation_checkpointing,
        head_chunk=module.head_chunk,
        fixed_slots=module.data.anchor_slots == "fixed",
    )


def _elsewhere(module: DFlashModule) -> str | None:
    if module.hidden_states is not None:
        return "hidden states come from disk: only its embedding and head are loaded"
    if module.target_devices:
        return "it has devices of its own: beside the drafter are only its embedding and head"
    return None
