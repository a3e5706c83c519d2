"""Which versions wrote a checkpoint: read from what is installed, nothing is imported for it."""

import platform
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("dflash-lightning", "torch", "lightning", "transformers")


@cache
def versions() -> dict[str, str]:
    """By package; one that is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
