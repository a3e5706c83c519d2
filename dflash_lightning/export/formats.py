"""One door to exported folders, ours and published ones, in either format.

in    a folder
out   ExportedDrafter(config, state, format, target), or the drafter itself
law   config.json says which format it is; everything read is checked as the format's module does
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.config_json import from_json_dict
from dflash_lightning.export.files import CONFIG_NAME, read_config
from dflash_lightning.export.speculators import from_speculators_json, load_speculators, target_of
from dflash_lightning.export.zlab import load_zlab

Format = Literal["zlab", "speculators"]


@dataclass(frozen=True)
class ExportedDrafter:
    """What a folder holds."""

    config: DrafterConfig
    state: Mapping[str, Tensor]
    """In the dtype the weights are stored in."""
    format: Format
    target: str | None
    """Named by speculators' format only."""


def format_of(folder: str | Path) -> Format:
    """Raises as load_folder."""
    return "speculators" if "speculators_model_type" in read_config(Path(folder)) else "zlab"


def load_folder(folder: str | Path, *, depth: int | None = None) -> ExportedDrafter:
    """Read an exported or published drafter.

    Args:
        depth: layers of the target, for folders in speculators' format that do not say.

    Raises:
        FileNotFoundError: the folder lacks its config or its weights.
        ValueError: it holds no DFlash drafter that we run, or not the one its config describes.
    """
    folder = Path(folder)
    if format_of(folder) == "speculators":
        config, state = load_speculators(folder, depth=depth)
        return ExportedDrafter(config, state, "speculators", target_of(read_config(folder)))
    config, state = load_zlab(folder)
    return ExportedDrafter(config, state, "zlab", None)


def load_config(folder: str | Path, *, depth: int | None = None) -> DrafterConfig:
    """What load_folder finds in config.json, without the weights. Raises as load_folder."""
    raw, source = read_config(Path(folder)), str(Path(folder) / CONFIG_NAME)
    if format_of(folder) == "speculators":
        return from_speculators_json(raw, source=source, depth=depth)
    return from_json_dict(raw, source=source)


def load_drafter(
    folder: str | Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    depth: int | None = None,
) -> DFlashDrafter:
    """The drafter in `folder`, ready to decode with. Raises as load_folder does."""
    return ready(load_folder(folder, depth=depth), dtype=dtype, device=device)


def ready(found: ExportedDrafter, *, dtype: torch.dtype, device: torch.device | str) -> DFlashDrafter:
    """What was read, as a drafter to decode with."""
    with torch.device("meta"):
        drafter = DFlashDrafter(found.config)
    drafter.load_state_dict({name: t.to(device, dtype) for name, t in found.state.items()}, assign=True)
    return drafter.eval().requires_grad_(False)
