"""The files of an exported folder, whatever its format, as they are read.

in    a folder
out   the raw config, the tensors, or their dtypes
law   what is damaged, missing or no weight is named
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from dflash_lightning.export.rounding import name_of

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
REMOTE_CODE_NAME = "dflash.py"
"""What `auto_map` in the config names."""
_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}
"""As a safetensors header names them."""
FLOATS = tuple(_DTYPES.values())


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
    return read_json(folder / CONFIG_NAME)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors, from one file or from the shards that an index names.

    Raises: ValueError where a file is damaged, or where tensors are no floating-point weights.
    """
    state: dict[str, Tensor] = {}
    for path in _weight_files(folder):
        try:
            state |= load_file(path)
        except SafetensorError as error:
            raise _damaged(path, error) from error
    return state


def read_dtypes(folder: Path) -> dict[str, torch.dtype]:
    """The dtype each tensor is stored in, from the headers alone; other kinds than FLOATS are left out.

    Raises: as read_weights.
    """
    found: dict[str, str] = {}
    for path in _weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:  # no mapping: it cannot be iterated
                found |= {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise _damaged(path, error) from error
    return {name: _DTYPES[code] for name, code in found.items() if code in _DTYPES}


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS_NAME).is_file():
        return [folder / WEIGHTS_NAME]
    names = sorted(set(read_json(folder / INDEX_NAME)["weight_map"].values()))
    for name in names:
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}, which {INDEX_NAME} names; copy it there too")
    return [folder / name for name in names]


def _damaged(path: Path, error: SafetensorError) -> ValueError:
    return ValueError(f"{path} is damaged ({error}); copy or export it again")


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


def read_json(path: Path) -> dict[str, Any]:
    """Raises: ValueError naming the file where it is no JSON, or no object of keys and values."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not JSON of the kind expected: it holds a {type(content).__name__}")
    return content
