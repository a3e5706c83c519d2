"""The target of `model.target_settings.sharded`: one for all ranks of a node.

out   a Target whose forward passes all ranks of the node run together
law   ranks of a node read its weights one after the other: host memory holds it once
"""

import torch
from lightning import Trainer
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from dflash_lightning.target.model import Target
from dflash_lightning.target.sharding import shard_target
from dflash_lightning.training.build import TargetSettings, build_target


def build_sharded_target(trainer: Trainer, name: str, settings: TargetSettings) -> Target:
    """Load and split the target `name`. A collective: all ranks call it.

    Raises: what load_target raises.
    """
    mesh, found = ranks_of_this_node(trainer), None
    for turn in range(trainer.num_devices):
        if turn == trainer.local_rank:
            whole = build_target(name, settings, torch.device("cpu"))
            found = shard_target(whole, mesh, trainer.strategy.root_device)
        trainer.strategy.barrier("target")
    assert found is not None
    return found


def ranks_of_this_node(trainer: Trainer) -> DeviceMesh:
    """Parts are gathered within a node, where that is fast."""
    shape = (trainer.num_nodes, trainer.num_devices)
    kind = trainer.strategy.root_device.type
    return init_device_mesh(kind, shape, mesh_dim_names=("node", "rank"))["rank"]


def require_shardable(
    *, ranks: int, target_devices: int, depth: int, stored: bool, inference_mode: bool
) -> None:
    """Refuse what a target that all ranks of a node run together cannot do.

    Args:
        ranks: Of this node.
        depth: Of the prefetch; 0 runs the target inline.
        stored: Hidden states come from disk.
        inference_mode: The trainer's, for validation.

    Raises:
        ValueError: what stands in the way, and the way out.
    """
    sharded = "model.target_settings.sharded spreads the target over the ranks of a node"
    if ranks < 2:
        raise ValueError(f"{sharded}, but this node has {ranks}: set trainer.devices to 2 or more")
    if target_devices:
        raise ValueError(
            f"{sharded}, on the drafters' devices, but model.target_devices is {target_devices}: set one of "
            "the two"
        )
    if stored:
        raise ValueError(f"{sharded}, but with model.hidden_states no target runs: leave out one of the two")
    if depth:
        raise ValueError(
            f"{sharded}, which must run it in step, but model.prefetch.depth {depth} runs it ahead in a "
            "thread of each: set the depth to 0, and take PrefetchBalance out of trainer.callbacks"
        )
    if inference_mode:
        raise ValueError(
            f"{sharded}, and parts that are gathered in a validation are used by training again: set "
            "trainer.inference_mode to false"
        )
