"""Writes and reads drafters in z-lab's format: config.json and one model.safetensors.

in    DrafterConfig and the drafter's state dict; or a folder
out   a folder that serving engines load; or config and state dict
law   reading checks every tensor by name and shape: what loads is what was trained, rounded to the stored
      dtype
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.config_json import from_json_dict, to_json_dict
from dflash_lightning.export.names import require_shapes

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"


def export_zlab(
    config: DrafterConfig,
    state: Mapping[str, Tensor],
    folder: str | Path,
    *,
    dtype: torch.dtype = torch.bfloat16,
) -> Path:
    """Write `state` (the drafter's own state dict) and `config` into `folder`, made if missing.

    The weights come first and the config last, each under a temporary name and then renamed: a folder with a
    config.json is complete.

    Raises:
        ValueError: `state` is not the drafter `config` describes.
    """
    folder = Path(folder)
    require_shapes(state, config, source="the state dict")
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in state.items()}
    weights, described = folder / f"{WEIGHTS_NAME}.part", folder / f"{CONFIG_NAME}.part"
    save_file(tensors, weights, metadata={"format": "pt"})  # transformers refuses a file without this
    content = to_json_dict(config, dtype=str(dtype).removeprefix("torch."))
    described.write_text(json.dumps(content, indent=2) + "\n")
    weights.chmod(described.stat().st_mode)  # as any new file's; safetensors makes it its owner's alone
    weights.replace(folder / WEIGHTS_NAME)
    described.replace(folder / CONFIG_NAME)
    return folder


def load_zlab(folder: str | Path) -> tuple[DrafterConfig, dict[str, Tensor]]:
    """Config and tensors of a drafter in z-lab's format, in the dtype they are stored in.

    Raises:
        FileNotFoundError: the folder lacks one of the two files.
        ValueError: the config is not a DFlash drafter's, or tensors are missing, unknown or of another shape.
    """
    folder = Path(folder)
    for name in (CONFIG_NAME, WEIGHTS_NAME):
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"{folder} has no {name}, so it is no exported drafter; write one with `python cli.py export`"
            )
    config = from_json_dict(_read_json(folder / CONFIG_NAME), source=str(folder / CONFIG_NAME))
    state = load_file(folder / WEIGHTS_NAME)
    require_shapes(state, config, source=str(folder / WEIGHTS_NAME))
    return config, state


def load_drafter(
    folder: str | Path, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> DFlashDrafter:
    """The drafter in `folder`, ready to decode with. Raises as load_zlab does."""
    config, state = load_zlab(folder)
    with torch.device("meta"):
        drafter = DFlashDrafter(config)
    drafter.load_state_dict({name: tensor.to(device, dtype) for name, tensor in state.items()}, assign=True)
    return drafter.eval().requires_grad_(False)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    return content
