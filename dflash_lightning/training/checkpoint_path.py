"""`--ckpt_path last`: the newest checkpoint of a run, or an error."""

from collections.abc import Sequence
from pathlib import Path


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
