"""Puts an exported folder on the disk: all of it, or what was there before stays.

in    tensors, a config, further texts
out   a folder
law   everything is written under temporary names first, and only then takes the place of what was there: a
      full disk costs nothing. config.json goes first and comes last: a folder with one is complete
"""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from dflash_lightning.export.files import CONFIG_NAME, INDEX_NAME, REMOTE_CODE_NAME, WEIGHTS_NAME


def write_folder(
    folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any], extras: Mapping[str, str]
) -> Path:
    """`extras`: further files by name, such as a model card. What an earlier export left is replaced.

    Raises:
        OSError: the folder cannot be written, such as on a full disk; what it held is untouched.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    texts = {**extras, CONFIG_NAME: json.dumps(config, indent=2) + "\n"}
    parts = {name: folder / f"{name}.part" for name in (WEIGHTS_NAME, *texts)}
    try:
        for name, text in texts.items():
            parts[name].write_text(text, encoding="utf-8")
        # transformers refuses a file without this
        save_file(dict(tensors), parts[WEIGHTS_NAME], metadata={"format": "pt"})
        # as any new file's; safetensors makes it its owner's alone
        parts[WEIGHTS_NAME].chmod(parts[CONFIG_NAME].stat().st_mode)
        for part in parts.values():
            _reach_the_disk(part)
    except (OSError, SafetensorError) as error:
        _clean(parts.values(), made)
        raise OSError(
            f"{folder} cannot be written ({error}): make room there or give another --output; what it held "
            "before is untouched"
        ) from error
    except BaseException:
        _clean(parts.values(), made)
        raise
    _swap(folder, parts)
    return folder


def _swap(folder: Path, parts: Mapping[str, Path]) -> None:
    (folder / CONFIG_NAME).unlink(missing_ok=True)
    for left in {REMOTE_CODE_NAME, INDEX_NAME} - parts.keys():
        (folder / left).unlink(missing_ok=True)  # code of another drafter, or shards of one
    for name, part in parts.items():
        part.replace(folder / name)


def _reach_the_disk(part: Path) -> None:
    """Some file systems say only now that they are full."""
    with part.open("rb") as file:
        os.fsync(file.fileno())


def _clean(parts: Iterable[Path], made: list[Path]) -> None:
    for part in parts:
        part.unlink(missing_ok=True)
    with suppress(OSError):  # another process may have put something there
        for folder in made:  # the innermost first
            folder.rmdir()
