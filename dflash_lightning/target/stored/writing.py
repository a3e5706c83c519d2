"""Runs the target over all samples once and puts its states on disk.

in    a Target, token ids by sample number, an unfinished folder
out   the folder, complete
law   a sample's states are those of the target alone on it, up to last digits that depend on the kernels its
      batch runs through; a state that is no number is never written
"""

import zlib
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dflash_lightning.plan.samples import IntArray
from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.model import Target
from dflash_lightning.target.stored.folder import UnfinishedStates
from dflash_lightning.target.stored.layout import cut_batches
from dflash_lightning.target.stored.manifest import StatesManifest

TokenIds = Callable[[int], npt.NDArray[np.int64]]
"""Sample number -> its token ids."""
OnProgress = Callable[[int, int], None]


def write_states(
    folder: UnfinishedStates,
    target: Target,
    ids_of: TokenIds,
    *,
    max_tokens: int,
    place_of: Callable[[int], str] = str,
    on_progress: OnProgress = lambda done, total: None,
) -> StatesManifest:
    """Fill what is missing of `folder`, and publish it.

    Args:
        max_tokens: rows x padded length of one forward pass, at most; a longer sample runs alone.
        place_of: sample number -> where it came from, for the message that refuses its states.
        on_progress: called with (done, total), in bytes of states.

    Raises: ValueError for a state that is not finite.
    """
    total = int(folder.layout.lengths.sum()) * folder.manifest.token_bytes
    done = total - folder.missing_bytes()
    on_progress(done, total)
    for shard in folder.missing():
        writer = _Shard(folder, shard)
        for samples, states in _batches(folder, shard, target, ids_of, max_tokens):
            _require_finite(states, folder.layout.lengths[samples], samples, place_of)
            done += writer.add(samples, states) * folder.manifest.token_bytes
            on_progress(done, total)
        folder.put(shard, writer.tensors())
    return folder.publish()


def _batches(
    folder: UnfinishedStates, shard: int, target: Target, ids_of: TokenIds, max_tokens: int
) -> Iterator[tuple[IntArray, TargetStates]]:
    """Right-padded: with causal attention no token sees what stands behind it."""
    identity, samples = folder.manifest.identity, folder.layout.samples(shard)
    for part in cut_batches(folder.layout.lengths[samples], max_tokens=max_tokens):
        batch = samples[part]
        rows = [torch.from_numpy(ids_of(int(sample))) for sample in batch]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(target.device)
        yield batch, target.tapped_states(ids, identity.taps, final=identity.final)


class _Shard:
    """The states of a shard's samples, one behind the other."""

    def __init__(self, folder: UnfinishedStates, shard: int) -> None:
        self._lengths = folder.layout.lengths
        self._tokens = folder.layout.tokens(shard)
        self._states: dict[str, Tensor] = {}
        self._checksums: list[int] = []
        self._used = 0

    def add(self, samples: IntArray, states: TargetStates) -> int:
        """Returns the tokens that were added."""
        before = self._used
        parts = {"taps": states.taps, "final": states.final}
        rows = {name: part.cpu() for name, part in parts.items() if part is not None}
        for i, length in enumerate(self._lengths[samples].tolist()):
            kept = [self._keep(name, part[i, :length]) for name, part in rows.items()]
            self._checksums.append(checksum(kept))
            self._used += length
        return self._used - before

    def tensors(self) -> dict[str, Tensor]:
        return {**self._states, "checksums": torch.tensor(self._checksums)}

    def _keep(self, name: str, row: Tensor) -> Tensor:
        if name not in self._states:
            self._states[name] = row.new_empty(self._tokens, row.shape[1])
        place = self._states[name][self._used : self._used + len(row)]
        return place.copy_(row)


def checksum(parts: list[Tensor]) -> int:
    """CRC-32 over the bytes of contiguous tensors, one behind the other."""
    value = 0
    for part in parts:
        value = zlib.crc32(part.view(torch.uint8).numpy().data, value)
    return value


def _require_finite(
    states: TargetStates, lengths: IntArray, samples: IntArray, place_of: Callable[[int], str]
) -> None:
    finite = states.taps.isfinite().all(-1)
    if states.final is not None:
        finite &= states.final.isfinite().all(-1)
    real = torch.arange(finite.shape[1]) < torch.from_numpy(lengths)[:, None]
    bad = (real & ~finite.cpu()).any(1).nonzero().flatten().tolist()
    if bad:
        sample = int(samples[bad[0]])
        raise ValueError(
            f"the target's hidden states of sample {sample} ({place_of(sample)}) are not finite in "
            f"{states.taps.dtype}: run the target in another precision (model.target_settings.dtype), or "
            "leave the sample out of the store"
        )
