"""State of a run whose weights and moments are split over ranks: taken without a copy, put back in place.

in    Lightning's checkpoint dictionary, and a strategy that keeps parts
out   the same dictionary as one process would write it, but with this rank's rows only
law   taking it needs no other rank, and no copy on or from a device
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning import Trainer
from lightning.pytorch.strategies import ModelParallelStrategy, Strategy
from torch import Tensor
from torch.distributed.tensor import DTensor

from dflash_lightning.checkpoint.resuming.fetch import Files, FilesOfRank, all_files
from dflash_lightning.checkpoint.shards import load_shards, merge_shards, own_part, reshard, share


def main_address(trainer: Trainer) -> str:
    """Of rank 0, as the other ranks know it."""
    environment = trainer.strategy.cluster_environment  # type: ignore[attr-defined]  # of those that are parallel
    return str(environment.main_address)


def is_split(strategy: Strategy) -> bool:
    """True where each rank holds a part of the drafter."""
    return isinstance(strategy, ModelParallelStrategy)


def dump_split(trainer: Trainer) -> dict[str, Any]:
    with _as_they_are(trainer.strategy):
        state = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
    return own_part(state, rank=trainer.global_rank, world=trainer.world_size)


@contextmanager
def _as_they_are(strategy: Strategy) -> Iterator[None]:
    """ModelParallelStrategy itself would copy every tensor into fresh memory of the CPU, with training at a
    stand; what Strategy does is to name them."""
    names = ("lightning_module_state_dict", "optimizer_state")
    vars(strategy).update({name: partial(getattr(Strategy, name), strategy) for name in names})
    try:
        yield
    finally:
        for name in names:
            del vars(strategy)[name]


def files_for(trainer: Trainer) -> Files:
    """What this rank needs of a checkpoint."""
    if is_split(trainer.strategy):
        return FilesOfRank(trainer.global_rank, trainer.world_size)
    return all_files


def load_fetched(trainer: Trainer, path: Path, *, weights_only: bool | None) -> dict[str, Any]:
    """The state in a file, or in shards of whatever number of ranks; a split drafter has it in place then."""
    split, rank, world = is_split(trainer.strategy), trainer.global_rank, trainer.world_size
    state: dict[str, Any]
    if path.is_dir():
        parts = load_shards(path)
        state = reshard(parts, rank=rank, world=world) if split else merge_shards(parts)
    elif split:
        state = torch.load(path, map_location="cpu", weights_only=True)
    else:
        state = trainer.strategy.load_checkpoint(path, weights_only=weights_only)
    if split:
        load_split(trainer, state)
    return state


@torch.no_grad()
def load_split(trainer: Trainer, state: Mapping[str, Any]) -> None:
    """Put weights and, in a fit, moments in place. Tensors of `state` are whole, or this rank's rows.

    Raises: ValueError where a name or a shape is not that of this run.
    """
    module = trainer.lightning_module
    ours, theirs = module.state_dict(), state["state_dict"]
    if ours.keys() != theirs.keys():
        odd = ", ".join(sorted(ours.keys() ^ theirs.keys())[:5])
        raise ValueError(f"the checkpoint holds other weights than this run has: {odd}")
    for name, value in ours.items():
        if isinstance(value, DTensor):
            value.to_local().copy_(_rows(theirs[name], value, name))
        else:
            value.copy_(theirs[name])
    if trainer.state.fn == "fit":
        for optimizer, saved in zip(trainer.strategy.optimizers, state["optimizer_states"], strict=True):
            _load_moments(optimizer, saved)


def _load_moments(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    states = {
        number: {name: _like(value, parameters[number], name) for name, value in entry.items()}
        for number, entry in saved["state"].items()
    }
    optimizer.load_state_dict({"state": states, "param_groups": saved["param_groups"]})


def _like(value: Any, parameter: Tensor, name: str) -> Any:
    """Moments are split as their parameter is; the count of steps is not."""
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.ndim == 0:
        return value
    rows = _rows(value, parameter, name).clone().to(parameter.device)
    mesh, placements = parameter.device_mesh, parameter.placements
    return DTensor.from_local(
        rows, mesh, placements, run_check=False, shape=parameter.shape, stride=parameter.stride()
    )


def _rows(saved: Tensor, ours: DTensor, name: str) -> Tensor:
    """This rank's rows of a whole tensor; rows that are this rank's already are returned as they are."""
    local = ours.to_local().shape
    if saved.shape == ours.shape:
        mesh = ours.device_mesh
        start, stop = share(len(saved), rank=mesh.get_local_rank(), world=mesh.size())
        saved = saved[start:stop]
    if saved.shape != local:
        raise ValueError(f"{name} has shape {tuple(saved.shape)} in the checkpoint, {tuple(local)} here")
    return saved
