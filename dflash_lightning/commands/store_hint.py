"""Where the checkpoints of a run lie, for who named the run's folder instead.

in    a folder
out   addresses: stores below it, and those that the configs kept in its logs name
"""

from pathlib import Path
from typing import Any

from dflash_lightning.checkpoint.layout import MANIFESTS

_DEEP, _CALLBACK = 3, "S3Checkpoint"


def stores_of(folder: Path) -> list[str]:
    """Each once: what is there first, then what runs said."""
    near = [path for depth in range(1, _DEEP) for path in folder.glob("/".join("*" * depth))]
    found = [str(path) for path in near if (path / MANIFESTS).is_dir()]
    for depth in range(_DEEP):
        for config in sorted(folder.glob("/".join([*"*" * depth, "config*.yaml"]))):
            found += _uris(config)
    return list(dict.fromkeys(found))


def _uris(config: Path) -> list[str]:
    import yaml

    try:
        callbacks = yaml.safe_load(config.read_text(encoding="utf-8"))["trainer"]["callbacks"]
        return [str(c["init_args"]["uri"]) for c in callbacks if _is_ours(c)]
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
        return []  # another file of that name


def _is_ours(callback: Any) -> bool:
    return str(callback["class_path"]).rpartition(".")[2] == _CALLBACK
