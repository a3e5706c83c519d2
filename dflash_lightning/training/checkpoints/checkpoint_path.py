"""`--ckpt_path last` and `best`: where the checkpoints of a run with this config are, or an error."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def newest_checkpoint(folders: Sequence[Path]) -> Path:
    """The file last written among *.ckpt below `folders`.

    Raises: FileNotFoundError when there is none; starting from scratch instead would lose the run unnoticed.
    """
    found = [path for folder in folders for path in sorted(folder.rglob("*.ckpt"))]
    if not found:
        raise FileNotFoundError(
            f"--ckpt_path last: no checkpoint below {', '.join(map(str, folders))}; "
            "name the file, or leave --ckpt_path out to start from scratch"
        )
    return max(found, key=lambda path: path.stat().st_mtime_ns)


def meant_by(word: str, callbacks: Sequence[Mapping[str, Any]], root: Path) -> str:
    """What `last` and `best` stand for; anything else means itself. `callbacks` as in the YAML.

    The store of S3Checkpoint comes first; without it `last` is the newest file in the folders that callbacks
    name, or below `root`.
    """
    inits = [(str(c["class_path"]), c.get("init_args") or {}) for c in callbacks]
    stores = [init["uri"] for name, init in inits if name.rpartition(".")[2] == "S3Checkpoint"]
    if word in ("last", "best") and stores:
        return f"{stores[0].rstrip('/')}/{word}"
    if word != "last":
        return word
    folders = [Path(init[key]) for _, init in inits for key in ("dirpath", "folder") if init.get(key)]
    return str(newest_checkpoint(folders or [root]))
