"""What `--ckpt_path` and `--checkpoint` may name: a file, or the address of a checkpoint in a store.

law   a copy of what is in a store goes away with the block that needed it
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dflash_lightning.checkpoint.resuming.fetch import Fetched, fetch_checkpoint
from dflash_lightning.checkpoint.resuming.resume import parse_source
from dflash_lightning.checkpoint.stores.settings import StoreSettings

_SCHEMES = ("", "s3", "file", "memory")


def is_address(path: str) -> bool:
    """False for the path of a file, and for what Lightning fetches itself (http).

    Raises: ValueError for an address that is none.
    """
    scheme = path.partition("://")[0] if "://" in path else ""
    return scheme in _SCHEMES and parse_source(path).which is not None


@contextmanager
def local_copy(path: str, settings: StoreSettings) -> Iterator[Path]:
    """The file itself, or a verified copy. Raises: StoreError where the store has none that is whole."""
    with local_checkpoint(path, settings) as fetched:
        yield fetched.path


@contextmanager
def local_checkpoint(path: str, settings: StoreSettings) -> Iterator[Fetched]:
    """As local_copy, with the manifest of a copy; of several shards the path is that of one file."""
    if not is_address(path):
        yield Fetched(Path(path), path, None)
        return
    with tempfile.TemporaryDirectory(prefix="dflash-checkpoint-") as folder:
        copy = fetch_checkpoint(path, settings, Path(folder))
        yield replace(copy, path=_merged(copy.path)) if copy.path.is_dir() else copy


def _merged(shards: Path) -> Path:
    """One file of all of them, beside them."""
    import torch

    from dflash_lightning.checkpoint.shards import load_shards, merge_shards

    path = shards.with_suffix(".ckpt")
    torch.save(merge_shards(load_shards(shards)), path)
    return path
