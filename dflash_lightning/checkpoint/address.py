"""What `--ckpt_path` and `--checkpoint` may name: a file, or the address of a checkpoint in a store.

law   a copy of what is in a store goes away with the block that needed it
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dflash_lightning.checkpoint.fetch import fetch
from dflash_lightning.checkpoint.resume import parse_source
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
    if not is_address(path):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="dflash-checkpoint-") as folder:
        copy = fetch(path, settings, Path(folder))
        yield _merged(copy) if copy.is_dir() else copy


def _merged(shards: Path) -> Path:
    """One file of all of them, beside them."""
    import torch

    from dflash_lightning.checkpoint.shards import load_shards, merge_shards

    path = shards.with_suffix(".ckpt")
    torch.save(merge_shards(load_shards(shards)), path)
    return path
