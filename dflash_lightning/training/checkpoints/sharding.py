"""FSDP2: weights, gradients and moments of the drafter spread over the ranks.

in    a built drafter, the device mesh of Lightning's ModelParallelStrategy
out   the same drafter, of which each rank holds its part of every tensor, split along the first axis
law   losses, norms and weights are those of DDP (fp32: up to the order of sums); the target is not split
"""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from dflash_lightning.drafter.model import DFlashDrafter


def shard_drafter(drafter: DFlashDrafter, mesh: DeviceMesh) -> None:
    """One unit a layer, and one for all the rest: a layer is whole on a device only while it computes.

    Raises: ValueError for a mesh with tensor parallelism.
    """
    tensor_parallel = mesh["tensor_parallel"].size()
    if tensor_parallel != 1:
        raise ValueError(
            f"ModelParallelStrategy splits tensors {tensor_parallel} ways (tensor_parallel_size, by default "
            "the devices of a node), but the drafter is split by FSDP2 only: set tensor_parallel_size to 1 "
            "and data_parallel_size to the number of ranks"
        )
    over = mesh["data_parallel"]
    for layer in drafter.layers:
        fully_shard(layer, mesh=over)
    fully_shard(drafter, mesh=over)


def hold_whole(module: nn.Module) -> None:
    """From its next forward pass on, the weights of a split module stay whole on this rank.

    Validation gives ranks unequal numbers of forward passes, each of which would else wait for all ranks.
    """
    for part in _split_parts(module):
        part.set_reshard_after_forward(False, recurse=False)


def split_again(module: nn.Module) -> None:
    """Undo `hold_whole`."""
    for part in _split_parts(module):
        part.set_reshard_after_forward(True, recurse=False)
        part.reshard()


def _split_parts(module: nn.Module) -> list[FSDPModule]:
    return [part for part in module.modules() if isinstance(part, FSDPModule)]
