"""`--ckpt_path`: what `last` and `best` mean for a run with this config, and whether a file is there."""

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

    Raises: FileNotFoundError for `last` where there is none, and for a file that is not there: before the
        target is loaded, which may take minutes.
    """
    inits = [(str(c["class_path"]), c.get("init_args") or {}) for c in callbacks]
    stores = [init["uri"] for name, init in inits if name.rpartition(".")[2] == "S3Checkpoint"]
    if word in ("last", "best") and stores:
        return f"{stores[0].rstrip('/')}/{word}"
    if word != "last":
        if word.endswith(".ckpt") and "://" not in word and not Path(word).exists():
            raise FileNotFoundError(
                f"--ckpt_path {word}: no such file; name one that is there, a folder or bucket of "
                "checkpoints, `last` or `best`, or leave --ckpt_path out to start from scratch"
            )
        return word
    folders = [Path(init[key]) for _, init in inits for key in ("dirpath", "folder") if init.get(key)]
    return str(newest_checkpoint(folders or [root]))
