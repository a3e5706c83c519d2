"""Which device of a node does what: drafters first, then each rank's targets.

law   local rank r drafts on device r; its n targets are the devices from local_world + r * n on
"""

from collections.abc import Sequence

import torch


def target_devices(
    home: torch.device, *, local_rank: int, local_world: int, count: int
) -> list[torch.device]:
    """The devices of one rank's targets, where `home` is its drafter's; just `home` for a count of 0.

    CPUs have no numbers: there are `count` times the CPU, which stand in for devices in tests.
    """
    if count == 0:
        return [home]
    if home.type == "cpu":
        return [home] * count
    first = local_world + local_rank * count
    return [torch.device(home.type, index) for index in range(first, first + count)]


def require_first_devices(count: int, drafters: Sequence[torch.device]) -> None:
    """Raises ValueError where drafters sit elsewhere than on a node's first devices, so that targets of their
    own would come to lie on them.

    drafters: the devices of all ranks of this node.
    """
    indices = [device.index for device in drafters if device.type != "cpu"]
    if count > 0 and indices != list(range(len(indices))):
        raise ValueError(
            f"drafters are on devices {indices} (trainer.devices), but with model.target_devices {count} "
            "they must be the first ones, since targets follow behind them. Give trainer.devices as a "
            "number, and choose devices by CUDA_VISIBLE_DEVICES"
        )


def require_devices(count: int, *, local_world: int, available: int | None) -> None:
    """Raises ValueError where a node has fewer devices than drafters and their targets need.

    available: None for CPUs, which stand in for any number of devices.
    """
    if count < 0:
        raise ValueError(f"model.target_devices must be at least 0 (the drafter's own device), got {count}")
    if available is None:
        return
    needed = local_world * (1 + count)
    if needed > available:
        raise ValueError(
            f"model.target_devices is {count}: {local_world} drafters on this node, each with {count} target "
            f"devices of its own, need {needed} devices, but {available} are visible. Lower trainer.devices "
            "(the number of drafters) or model.target_devices"
        )
