"""Where a command will write: asked for before its work, not found out after it.

in    the option with its value, the path, and how the command writes there
out   nothing; or an error that names the option and what stands in the way
law   asking makes and changes nothing; what this passes can be written at the end, unless somebody takes the
      place or the room meanwhile
"""

import os
from pathlib import Path

PICTURES = (".png", ".pdf", ".svg")


def require_file(what: str, path: str | Path, *, makes_folders: bool = False, replaces: bool = False) -> None:
    """
    Args:
        what: the option with its value; it begins the message.
        makes_folders: the command makes the folders that are missing.
        replaces: it writes another file beside this one, and renames that.

    Raises:
        IsADirectoryError: `path` is a folder.
        FileNotFoundError, NotADirectoryError: there is no folder to write it in.
        PermissionError: the user may not write there.
    """
    path = Path(path).absolute()
    if _exists(path) and path.is_dir():
        raise IsADirectoryError(f"{what} is a folder, and a file has to be there: choose another name")
    if not makes_folders and not _exists(path.parent):
        raise FileNotFoundError(f"{what}: there is no folder {path.parent}: make it, or choose another")
    folder = _nearest_folder(what, path.parent)
    _require_allowed(what, path if _exists(path) and not replaces else folder)


def require_folder(what: str, folder: str | Path, *, replaces: bool = False) -> None:
    """A folder that the command makes, with those above it, or writes into.

    Args:
        what: the option with its value; it begins the message.
        replaces: the command writes another folder beside this one, and renames that.

    Raises:
        NotADirectoryError: `folder`, or one above it, is a file.
        PermissionError: the user may not write there.
    """
    folder = Path(folder).absolute()
    if _exists(folder) and not folder.is_dir():
        raise NotADirectoryError(f"{what} is a file, and a folder has to be there: choose another name")
    _require_allowed(what, _nearest_folder(what, folder.parent if replaces else folder))


def require_picture(option: str, path: str | Path) -> None:
    """`option` without its value. Raises as require_file; ValueError for a file that is no picture."""
    require_file(f"{option} {path}", path)
    if Path(path).suffix not in PICTURES:
        raise ValueError(f"{option} {path}: name a file that ends in {', '.join(PICTURES)}")


def _nearest_folder(what: str, folder: Path) -> Path:
    """The folder itself, or the first one above that is there: the others will be made in it."""
    there = next(path for path in (folder, *folder.parents) if _exists(path))
    if not there.is_dir():
        raise NotADirectoryError(f"{what}: {there} is a file, and a folder has to be there: choose another")
    return there


def _exists(path: Path) -> bool:
    """False, where Path.exists would raise, for what lies in a folder that the user may not look into."""
    return os.access(path, os.F_OK, effective_ids=True)


def _require_allowed(what: str, path: Path) -> None:
    needed = os.W_OK | os.X_OK if path.is_dir() else os.W_OK
    if not os.access(path, needed, effective_ids=True):
        raise PermissionError(f"{what}: you may not write there: choose another place")
