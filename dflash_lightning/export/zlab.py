"""Writes and reads drafters in z-lab's format: config.json and one model.safetensors.

in    DrafterConfig and the drafter's state dict; or a folder
out   a folder that serving engines load; or config and state dict
law   reading checks every tensor by name and shape: what loads is what was trained, rounded to the stored
      dtype
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.export.config_json import from_json_dict, to_json_dict
from dflash_lightning.export.files import CONFIG_NAME, read_config, read_weights, require_floats
from dflash_lightning.export.names import require_shapes
from dflash_lightning.export.rounding import name_of, rounded
from dflash_lightning.export.write_files import write_folder


def export_zlab(
    config: DrafterConfig,
    state: Mapping[str, Tensor],
    folder: str | Path,
    *,
    dtype: torch.dtype | None = torch.bfloat16,
    extras: Mapping[str, str] | None = None,
) -> Path:
    """Write `state` (the drafter's own state dict) and `config` into `folder`, made if missing.

    Args:
        dtype: of the stored weights; None keeps each tensor's own.
        extras: further texts by file name, such as README.md.

    Raises:
        ValueError: `state` is not the drafter `config` describes, or is not finite.
    """
    require_shapes(state, config, source="the state dict")
    tensors = rounded(state, dtype)
    described = to_json_dict(config, dtype=name_of(tensors["fc.weight"].dtype))
    return write_folder(Path(folder), tensors, described, extras or {})


def load_zlab(folder: str | Path) -> tuple[DrafterConfig, dict[str, Tensor]]:
    """Config and tensors of a drafter in z-lab's format, in the dtype they are stored in.

    Raises:
        FileNotFoundError: the folder lacks its config or its weights.
        ValueError: the config is not a DFlash drafter's, or tensors are missing, unknown, of another shape or
            no floating-point numbers.
    """
    folder = Path(folder)
    config = from_json_dict(read_config(folder), source=str(folder / CONFIG_NAME))
    state = read_weights(folder)
    require_shapes(state, config, source=str(folder))
    require_floats(state, source=str(folder))
    return config, state
