"""Text of the tiny example: the Python standard library's sources, cut in two by a hash of the file name."""

import sysconfig
import zlib
from pathlib import Path
from typing import Literal

LEFT_OUT = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "encodings",
    "lib2to3",
    "pydoc_data",
}
"""Installed packages, test data and generated tables."""


def read_sources(split: Literal["train", "heldout"]) -> dict[str, str]:
    """Name in the library -> ASCII text; one file in 20 is held out."""
    root = Path(sysconfig.get_path("stdlib"))
    files = {str(path.relative_to(root)): path for path in sorted(root.rglob("*.py"))}
    texts = {
        name: path.read_text(encoding="utf-8", errors="replace")
        for name, path in files.items()
        if not LEFT_OUT & set(Path(name).parts) and is_heldout(name) == (split == "heldout")
    }
    return {name: text for name, text in texts.items() if text.isascii() and len(text) > 1024}


def is_heldout(name: str) -> bool:
    return zlib.crc32(name.encode()) % 20 == 0
