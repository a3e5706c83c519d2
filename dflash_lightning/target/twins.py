"""One target for each device, from one that was loaded.

law   twins run at the same time: each has modules, and so hooks, of its own; on one device they share weights
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dflash_lightning.target.model import Target


def twin(target: Target, device: torch.device) -> Target:
    """An independent target on `device`; its weights are copied only if it is another device."""
    model = target.model
    moved: dict[int, Any] = {id(p): _parameter_on(p, device) for p in model.parameters()}
    moved |= {id(buffer): buffer.to(device) for buffer in model.buffers()}
    return Target(copy.deepcopy(model, moved))  # what is in `moved` is taken from there, tied weights once


def one_for_each(target: Target, devices: Sequence[torch.device]) -> list[Target]:
    """`target`, which lives on the first device, and a twin on every other one."""
    return [target, *(twin(target, device) for device in devices[1:])]


def _parameter_on(parameter: nn.Parameter, device: torch.device) -> Tensor:
    if parameter.device == device:
        return parameter
    return nn.Parameter(parameter.detach().to(device), requires_grad=False)
