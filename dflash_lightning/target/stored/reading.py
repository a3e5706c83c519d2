"""Hidden states from disk, in place of running the target.

in    a folder that `prepare --hidden-states` wrote; sample ids of a batch, its padded length
out   TargetStates as the target would have returned them, padded with zeros, on the CPU
law   a sample's states are the bytes that were written: each is checked against its checksum when this
      process first reads it; a folder opens in a time that does not depend on the size of its shards
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load
from torch import Tensor

from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.stored.folder import INDEX
from dflash_lightning.target.stored.manifest import (
    FILE_NAME,
    StatesIdentity,
    StatesManifest,
    lacking,
    shard_name,
)
from dflash_lightning.target.stored.writing import checksum

WRITE = "`python cli.py prepare --hidden-states --config <the YAML of the run>`"
OPEN_SHARDS = 512
"""Memory maps that are kept; the least recently read is closed."""


@dataclass(frozen=True, eq=False)
class StoredStates:
    """An open folder: an index in memory and maps of the shards. May be read from several threads."""

    path: Path
    manifest: StatesManifest
    index: dict[str, Tensor]
    """[n] each: shard, offset, length, checksum of every sample, train first."""

    @classmethod
    def open(cls, path: str | Path) -> "StoredStates":
        """Raises FileNotFoundError where there is no such folder, ValueError where it is damaged."""
        folder = Path(path)
        if not (folder / FILE_NAME).is_file():
            unfinished = folder.with_name(f"{folder.name}.partial").is_dir()
            state = "are unfinished: go on with" if unfinished else "are not there: write them with"
            raise FileNotFoundError(f"hidden states at {folder} {state} {WRITE}")
        manifest = StatesManifest.read_from(folder)
        stored = cls(folder, manifest, _read_index(folder, manifest))
        stored._require_whole()
        return stored

    def require_serves(self, wanted: StatesIdentity) -> None:
        """Raises ValueError naming every difference that would train on other states than the target's."""
        if lines := lacking(self.manifest.identity, wanted):
            raise ValueError(
                f"hidden states at {self.path} are not those of this run ({'; '.join(lines)}): write them "
                f"again with {WRITE}, or set model.hidden_states to null, which runs the target"
            )

    def states(
        self,
        split: str,
        sample_ids: Sequence[int],
        padded_length: int,
        *,
        taps: Sequence[int],
        final: bool,
        pin: bool = False,
    ) -> TargetStates:
        """States of rows of one split; a ghost (bitwise-negated id) is a copy; a longer row is cut.

        pin: in page-locked memory, from which a copy to a device does not wait.

        Raises: ValueError where a sample's bytes are not those that were written.
        """
        first = self._first(split)
        rows = [self._rows(first + (~i if i < 0 else i)) for i in sample_ids]
        wanted = None if tuple(taps) == self.manifest.identity.taps else self._columns(taps)
        return TargetStates(
            taps=_padded([row["taps"] for row in rows], padded_length, wanted, pin=pin),
            final=_padded([row["final"] for row in rows], padded_length, None, pin=pin) if final else None,
        )

    def verify(self, on_progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Read every byte. Raises ValueError for the first damaged sample; on_progress in samples."""
        by_place = sorted(range(self._num), key=lambda i: self._place(i)[:2])
        for done, sample in enumerate(by_place, start=1):
            self._rows(sample)
            on_progress(done, self._num)

    @property
    def _num(self) -> int:
        return sum(self.manifest.samples.values())

    def _first(self, split: str) -> int:
        """Number of a split's first sample."""
        names = list(self.manifest.samples)
        return sum(self.manifest.samples[name] for name in names[: names.index(split)])

    def _place(self, sample: int) -> tuple[int, int, int]:
        """(shard, offset, length)"""
        shard, offset, length = (int(self.index[name][sample]) for name in ("shard", "offset", "length"))
        return shard, offset, length

    def _rows(self, sample: int) -> dict[str, Tensor]:
        """Views of a sample's states in the mapped file, checked when they are first read."""
        shard, offset, length = self._place(sample)
        rows = {name: part[offset : offset + length] for name, part in self._shard(shard).items()}
        if not self._checked[sample]:
            found, written = checksum(list(rows.values())), int(self.index["checksum"][sample])
            if found != written:
                raise ValueError(
                    f"hidden states at {self.path / shard_name(shard)} are damaged: sample {sample} has "
                    f"checksum {found:08x}, {written:08x} was written. Copy that file again, or have it "
                    f"written again (docs/hidden-states.md, Damage)"
                )
            self._checked[sample] = True
        return rows

    def _columns(self, taps: Sequence[int]) -> Tensor:
        """Features of some of the tapped layers, in the order of `taps`."""
        width, there = self.manifest.hidden_size, self.manifest.identity.taps
        return torch.cat([torch.arange(width) + width * there.index(tap) for tap in taps])

    @cached_property
    def _checked(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.zeros(self._num, np.bool_)

    @cached_property
    def _shard(self) -> Callable[[int], dict[str, Tensor]]:
        return lru_cache(maxsize=OPEN_SHARDS)(self._map_shard)

    def _map_shard(self, shard: int) -> dict[str, Tensor]:
        """Tensors whose bytes are read from the file when they are touched."""
        path, identity = self.path / shard_name(shard), self.manifest.identity
        width = self.manifest.hidden_size
        shapes = {"taps": len(identity.taps) * width} | ({"final": width} if identity.final else {})
        try:
            with safe_open(path, "pt") as file:
                parts = {name: file.get_tensor(name) for name in shapes}
        except (SafetensorError, OSError) as error:
            raise ValueError(f"hidden states at {path} cannot be read: {error}") from error
        for name, part in parts.items():
            if part.shape[1:] != (shapes[name],) or part.dtype != getattr(torch, identity.dtype):
                raise ValueError(
                    f"hidden states at {path} are damaged: {name} is {part.dtype} {list(part.shape)}"
                )
        return parts

    def _require_whole(self) -> None:
        for shard, size in enumerate(self.manifest.shards):
            path = self.path / shard_name(shard)
            found = path.stat().st_size if path.exists() else None
            if found != size:
                what = "is missing" if found is None else f"has {found} bytes"
                raise ValueError(
                    f"hidden states at {self.path} are damaged: {path.name} {what}, {size} were written; "
                    "copy it again, or have it written again (docs/hidden-states.md, Damage)"
                )


def _read_index(folder: Path, manifest: StatesManifest) -> dict[str, Tensor]:
    path = folder / INDEX
    content = path.read_bytes() if path.is_file() else b""
    if sha256(content).hexdigest() != manifest.index_sha256:
        raise ValueError(
            f"hidden states at {folder} are damaged: {INDEX} is not the one that was written; copy it again"
        )
    return load(content)


def _padded(rows: Sequence[Tensor], length: int, columns: Tensor | None, *, pin: bool) -> Tensor:
    """[n_i, kh] each -> [b, length, kh], zeros behind each row's end."""
    width = rows[0].shape[1] if columns is None else len(columns)
    out = torch.empty(len(rows), length, width, dtype=rows[0].dtype, pin_memory=pin)
    for line, row in zip(out, rows, strict=True):
        real = row[:length]
        line[: len(real)] = real if columns is None else real[:, columns]
        line[len(real) :] = 0
    return out
