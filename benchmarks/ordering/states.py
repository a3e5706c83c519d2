"""The frozen target's hidden states of every chat, computed once and kept in a file.

in    token store, target, taps
out   CachedStates: the tapped states of any TokenBatch of that store, as the target would give them
law   the target is frozen and causal, so a row's states depend on the row alone; padded positions are zero
      here, and no block sees them
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.data.split import SPLITS
from dflash_lightning.data.store import TokenStore
from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.loading import Target

TOKENS_AT_ONCE = 4096


@dataclass(frozen=True)
class CachedStates:
    """States of one split, all rows behind each other: row i is taps[offsets[i] : offsets[i + 1]]."""

    taps: Tensor
    offsets: Tensor

    def of(self, batch: TokenBatch) -> TargetStates:
        padded = self.taps.new_zeros(*batch.input_ids.shape, self.taps.shape[1])
        for line, sample in zip(padded, batch.sample_ids.tolist(), strict=True):
            row = self.taps[self.offsets[sample] : self.offsets[sample + 1]][: len(line)]
            line[: len(row)] = row
        return TargetStates(taps=padded, final=None)


def cached_states(
    path: Path, target: Target, store: TokenStore, taps: tuple[int, ...]
) -> dict[str, CachedStates]:
    """Of each split of the store; from `path` if it holds them, else computed and written there."""
    made_for = {"store": store.manifest.digest, "taps": list(taps), "dtype": str(target.dtype)}
    if path.exists():
        kept = torch.load(path, mmap=True)
        if kept["made_for"] == made_for:
            return {split: CachedStates(**kept[split]) for split in SPLITS}
    states: dict[str, CachedStates] = {split: _states_of(target, store, split, taps) for split in SPLITS}
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"made_for": made_for, **{split: vars(states[split]) for split in SPLITS}}, path)
    return states


def _states_of(target: Target, store: TokenStore, split: str, taps: tuple[int, ...]) -> CachedStates:
    lengths = store.samples(split).lengths
    offsets = torch.from_numpy(np.concatenate(([0], np.cumsum(lengths))))
    states = torch.empty(int(offsets[-1]), len(taps) * target.hidden_size, dtype=target.dtype)
    left = np.argsort(-lengths, kind="stable")
    while len(left):
        rows = left[: max(1, TOKENS_AT_ONCE // int(lengths[left[0]]))]
        left = left[len(rows) :]
        ids = torch.zeros(len(rows), int(lengths[rows[0]]), dtype=torch.long)
        for line, row in zip(ids, rows, strict=True):
            line[: lengths[row]] = torch.from_numpy(store.row(split, row)[0])
        for row, found in zip(rows, target.tapped_states(ids, taps).taps, strict=True):
            states[offsets[row] : offsets[row + 1]] = found[: lengths[row]]
    return CachedStates(states, offsets)
