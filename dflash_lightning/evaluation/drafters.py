"""Reads the drafters of an evaluation, and refuses what does not fit the target before anything runs.

in    folders in z-lab's format, the target
out   label -> what the folder holds, and the drafter made of it; the methods to measure
law   a folder is read once, so that what is said of it is true of what was measured; one drafter has no
      label, two are A and B; both decode the same prompts with the same block size
"""

from collections.abc import Mapping, Sequence

import torch

from dflash_lightning.decoding.rounds import resolve_block_size
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.evaluation.measure import Method
from dflash_lightning.evaluation.result import PLAIN
from dflash_lightning.export.formats import ExportedDrafter, load_folder, ready
from dflash_lightning.target.geometry import require_fits
from dflash_lightning.target.model import Target


def labelled(drafter: str, against: str | None) -> dict[str, str]:
    """Label -> folder."""
    return {"": drafter} if against is None else {"A": drafter, "B": against}


def read_drafters(folders: Mapping[str, str], target: Target) -> dict[str, ExportedDrafter]:
    """Label -> what its folder holds.

    Raises:
        FileNotFoundError: a folder holds no drafter.
        ValueError: a drafter of another target, with the folder's name.
    """
    found = {}
    for label, folder in folders.items():
        found[label] = load_folder(folder, depth=target.depth)
        try:
            require_fits(found[label].config, target.config)
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from error
    return found


def ready_drafters(found: Mapping[str, ExportedDrafter], target: Target) -> dict[str, DFlashDrafter]:
    """On the target's device and in its dtype."""
    return {
        label: ready(drafter, dtype=target.dtype, device=target.device) for label, drafter in found.items()
    }


def common_block_size(drafters: Mapping[str, DFlashDrafter], wanted: int | None) -> int:
    """The block size of all drafters: as wanted, else the smallest that one was trained with.

    Raises:
        ValueError: a wanted size below 1, or above the one that a drafter was trained with.
    """
    smallest = min(drafter.config.block_size for drafter in drafters.values())
    asked = smallest if wanted is None else wanted
    return min(resolve_block_size(drafter, asked) for drafter in drafters.values())


def methods_for(drafters: Mapping[str, DFlashDrafter], budgets: Sequence[int]) -> list[Method]:
    """Plain decoding, then chains and trees of each drafter."""
    return [
        Method(PLAIN),
        *(
            Method(f"{kind} {label}".strip(), drafter, budget)
            for label, drafter in drafters.items()
            for kind, budget in [("chain", None), *((f"tree {budget}", budget) for budget in budgets)]
        ),
    ]


def dtype_named(name: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, name)
    return dtype
