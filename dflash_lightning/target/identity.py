"""Which target is this: one digest of its config and weights, in a moment, without loading it.

in    what the user wrote as `model.target`
out   24 hex digits
law   weights cut into other files, or files in another place, are the same target; another config value that
      the model computes with, another shape, or a fine-tuned copy is another

Of every tensor a few hundred bytes are read, not all: a full pass over a large target takes minutes at every
start. Fine-tuning moves all values of the tensors it touches; a change of single values goes unseen.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download

from dflash_lightning.target.embedded import resolve_target
from dflash_lightning.target.loading import is_hub_name

PIECES = 8
"""Places in a tensor that are read, spread evenly from its first byte to its last."""
PIECE_BYTES = 64
_NOT_COMPUTED_WITH = ("transformers_version", "_name_or_path", "dtype", "torch_dtype", "use_cache")


def target_digest(name_or_path: str | Path) -> str:
    """Raises FileNotFoundError where there is no such target, ValueError where a weight file is damaged."""
    folder = _folder(str(name_or_path))
    digest = hashlib.sha256(json.dumps(_config_facts(folder), sort_keys=True).encode())
    for fact in sorted(_weight_facts(folder)):
        digest.update(repr(fact).encode())
    return digest.hexdigest()[:24]


def _folder(name: str) -> Path:
    """A hub name is where the hub's cache has it; what is missing there is fetched, as loading would."""
    if not is_hub_name(name):
        return resolve_target(name)
    return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))


def _config_facts(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"target {folder} has no config.json: give a folder in Hugging Face format")
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {key: value for key, value in config.items() if key not in _NOT_COMPUTED_WITH}


def _weight_facts(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """(tensor, kind and shape, hash of pieces); a file in another format counts as one tensor."""
    files = sorted(folder.glob("*.safetensors"))
    for path in files:
        yield from _tensors(path)
    if not files:
        for path in sorted(folder.glob("pytorch_model*.bin")):
            yield path.name, "", _pieces(path, 0, path.stat().st_size)


def _tensors(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """The header of a safetensors file is its length in 8 bytes, then JSON; the tensors' bytes follow."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(size)) if size < path.stat().st_size else None
        except ValueError:
            header = None
    if header is None:
        raise ValueError(f"{path} is damaged: its header cannot be read; fetch the target again")
    header.pop("__metadata__", None)
    for name, entry in header.items():
        start, stop = (8 + size + offset for offset in entry["data_offsets"])
        yield name, f"{entry['dtype']} {entry['shape']}", _pieces(path, start, stop)


def _pieces(path: Path, start: int, stop: int) -> bytes:
    digest = hashlib.sha256()
    room = max(0, stop - start - PIECE_BYTES)
    with path.open("rb", buffering=0) as file:
        for piece in range(PIECES):
            file.seek(start + room * piece // (PIECES - 1))
            digest.update(file.read(min(PIECE_BYTES, stop - start)))
    return digest.digest()
