"""`--ckpt_path`: what `last` and `best` mean for a run with this config, and whether it is there.

in    the word, `trainer.callbacks` as in the YAML
out   the path or address that is meant; an error where nothing is there
law   asked before anything is built: the target may take minutes to load
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dflash_lightning.checkpoint.redact import redact_text
from dflash_lightning.checkpoint.resuming.address import is_address
from dflash_lightning.checkpoint.resuming.resume import (
    NothingFound,
    asks_for_newest_of,
    parse_source,
    resolve,
)
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.open import open_store
from dflash_lightning.checkpoint.stores.settings import StoreSettings

_OF_LIGHTNING = ("best", "hpc", "registry")
"""Words, and registry:model, that it makes a path of when the run begins."""


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

    Raises: FileNotFoundError for `last` where there is none, and for a file that is not there.
    """
    stores = _stores(callbacks)
    if word in ("last", "best") and stores:
        return f"{stores[0]['uri'].rstrip('/')}/{word}"
    if word != "last":
        if word.endswith(".ckpt") and "://" not in word and not Path(word).exists():
            raise FileNotFoundError(
                f"--ckpt_path {word}: no such file; name one that is there, a folder or bucket of "
                "checkpoints, `last` or `best`, or leave --ckpt_path out to start from scratch"
            )
        return word
    inits = [c.get("init_args") or {} for c in callbacks]
    folders = [Path(init[key]) for init in inits for key in ("dirpath", "folder") if init.get(key)]
    return str(newest_checkpoint(folders or [root]))


def require_usable(meant: str, callbacks: Sequence[Mapping[str, Any]], *, fit: bool) -> None:
    """Ask the store that the address `meant` names for a checkpoint; a path is nothing to it. No byte of the
    state is read. Every rank asks by itself: credentials and mounted folders differ from node to node.

    Raises: StoreError for a store that does not answer or refuses, and where no checkpoint could be loaded;
        ValueError for an address that is none. Nothing where a fit may start fresh instead.
    """
    if meant.partition(":")[0] in _OF_LIGHTNING or not is_address(meant):
        return
    ours = next(iter(_stores(callbacks)), {})
    source = parse_source(meant)
    assert source.which is not None, "an address"
    try:
        store, prefix = open_store(source.uri, StoreSettings(**ours.get("settings", {})))
        resolve(store, prefix, source.which, on_skip=lambda uri, reason: None)  # said when it is loaded
    except NothingFound as error:
        if not (fit and ours.get("if_missing") == "fresh" and asks_for_newest_of(ours["uri"], meant)):
            raise _refused(meant, error) from error
    except StoreError as error:
        raise _refused(meant, error) from error


def _stores(callbacks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Arguments of each S3Checkpoint."""
    inits = [(str(c["class_path"]), c.get("init_args") or {}) for c in callbacks]
    return [init for name, init in inits if name.rpartition(".")[2] == "S3Checkpoint"]


def _refused(meant: str, error: StoreError) -> StoreError:
    return StoreError(f"--ckpt_path {redact_text(meant)}: {error}", kind=error.kind)
