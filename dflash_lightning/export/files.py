"""The files of an exported folder, whatever its format.

in    tensors, a config, further texts; or a folder
out   a folder; or the raw config and the tensors
law   weights come first and config.json last, each under a temporary name that is then changed: a folder with
      a config.json is complete
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dflash_lightning.export.rounding import name_of

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
REMOTE_CODE_NAME = "dflash.py"
"""What `auto_map` in the config names."""
FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def write_folder(
    folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any], extras: Mapping[str, str]
) -> Path:
    """`extras`: further files by name, such as a model card. What an earlier export left is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_NAME).unlink(missing_ok=True)
    for left in {REMOTE_CODE_NAME, INDEX_NAME} - extras.keys():
        (folder / left).unlink(missing_ok=True)  # code of another drafter, or shards of one
    part = folder / f"{WEIGHTS_NAME}.part"
    save_file(dict(tensors), part, metadata={"format": "pt"})  # transformers refuses a file without this
    for name, text in {**extras, CONFIG_NAME: json.dumps(config, indent=2) + "\n"}.items():
        described = folder / f"{name}.part"
        described.write_text(text, encoding="utf-8")
        if part.exists():
            part.chmod(described.stat().st_mode)  # as any new file's; safetensors makes it its owner's alone
            part.replace(folder / WEIGHTS_NAME)
        described.replace(folder / name)
    return folder


def is_exported(folder: str | Path) -> bool:
    return (Path(folder) / CONFIG_NAME).is_file()


def read_config(folder: Path) -> dict[str, Any]:
    """Raises: FileNotFoundError where config.json or the weights are missing; ValueError for no JSON."""
    present = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    missing = [] if CONFIG_NAME in present else [CONFIG_NAME]
    missing += [] if present & {WEIGHTS_NAME, INDEX_NAME} else [WEIGHTS_NAME]
    if missing:
        raise FileNotFoundError(
            f"{folder} has no {missing[0]}, so it is no exported drafter; write one with "
            "`python cli.py export`"
        )
    return _read_json(folder / CONFIG_NAME)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors, from one file or from the shards that an index names.

    Raises: ValueError where a file is damaged, or where tensors are no floating-point weights.
    """
    if (folder / WEIGHTS_NAME).is_file():
        names = [WEIGHTS_NAME]
    else:
        names = sorted(set(_read_json(folder / INDEX_NAME)["weight_map"].values()))
    state: dict[str, Tensor] = {}
    for name in names:
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}, which {INDEX_NAME} names; copy it there too")
        try:
            state |= load_file(folder / name)
        except SafetensorError as error:
            raise ValueError(f"{folder / name} is damaged ({error}); copy or export it again") from error
    return state


def require_floats(state: Mapping[str, Tensor], *, source: str) -> None:
    """A quantised weight would load as if its codes were the values.

    Raises: ValueError naming each tensor that is not bfloat16, float16, float32 or float64.
    """
    other = [f"{name} is {name_of(t.dtype)}" for name, t in sorted(state.items()) if t.dtype not in FLOATS]
    if other:
        raise ValueError(
            f"{source} holds weights in another kind of number ({'; '.join(other)}); only bfloat16, float16 "
            "and float32 are read: give the drafter before it was quantised"
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not JSON of the kind expected: it holds a {type(content).__name__}")
    return content
