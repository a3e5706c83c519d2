"""FSDP2 for a frozen target that outgrows a device: each rank of a node holds a part of every decoder layer.

in    a target in host memory, the mesh of the ranks that share it
out   the same target on this rank's device; a layer is whole there only while it computes
law   its states are those of the whole target, bit for bit
law   a forward is a collective: the ranks of the mesh run equally many, one at a time
"""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from dflash_lightning.target.model import Target


def shard_target(target: Target, mesh: DeviceMesh, device: torch.device) -> Target:
    """Split the decoder layers of `target`, in place. Embedding, final norm and head stay whole on `device`:
    a drafter borrows the first and the last. No rank waits for another here."""
    for layer in target.parts.layers:  # each is gathered alone: the pass may end behind any of them
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    return target.to(device)
