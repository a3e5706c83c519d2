"""Caches of rows that have committed unequally many tokens, side by side in one tensor.

in    keys and values of a pass over several rows; which of its columns stand, row by row
out   row r holds its committed tokens in columns 0 .. length - 1
law   column j of every row is position j; the columns behind a row's length hold whatever they hold, and no
      mask shows them to anyone
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dflash_lightning.decoding.verify import crop_to
from dflash_lightning.drafter.cache import DrafterCache, LayerCache, grown


def keep_ragged(cache: Any, lengths: Sequence[int], kept: Sequence[Sequence[int]], *, window: int) -> None:
    """Of the columns from `window` on, keep in each row those at window + kept, behind its first `length`.

    Nothing is rotated again: each key was made for the position where it will stand (spec/dflash.md 4.4.3).
    """
    moves = [
        (row, window + column, length + place)
        for row, (length, columns) in enumerate(zip(lengths, kept, strict=True))
        for place, column in enumerate(columns)
        if window + column != length + place
    ]
    for layer in cache.layers if moves else ():
        rows, sources, goals = torch.tensor(moves, device=layer.keys.device).T
        for states in (layer.keys, layer.values):
            states[rows, :, goals] = states[rows, :, sources]  # the right side is read as a whole first
    crop_to(cache, max(length + len(columns) for length, columns in zip(lengths, kept, strict=True)))


def select_rows(cache: Any, rows: Sequence[int], *, longest: int) -> None:
    """Keep these rows, and the columns that the longest of them needs."""
    cache.batch_select_indices(torch.tensor(rows, device=cache.layers[0].keys.device))
    crop_to(cache, longest)


def padded(rows: Sequence[Sequence[int]], *, fill: int = 0) -> Int[Tensor, "rows longest"]:
    """Rows of unequal length, filled up on the right."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (longest - len(row))] for row in rows])


class RaggedDrafterCache(DrafterCache):
    """The drafter's keys and values of each row's context. Say what comes with `expect`, then run the
    drafter."""

    def __init__(self, num_layers: int, rows: int) -> None:
        self.lengths = [0] * rows
        """Context positions of each row, those expected next included."""
        self.rows: Int[Tensor, " new"] = torch.empty(0, dtype=torch.long)
        self.places = self.columns = self.rows
        self.layers: list[LayerCache] = [RaggedLayerCache(self) for _ in range(num_layers)]

    def expect(self, counts: Sequence[int]) -> None:
        """Of the next pass, the first `count` context positions of each row are new; the rest is padding."""
        places = [(row, i, self.lengths[row] + i) for row, count in enumerate(counts) for i in range(count)]
        self.rows, self.places, self.columns = torch.tensor(places, dtype=torch.long).view(-1, 3).T
        self.lengths = [length + count for length, count in zip(self.lengths, counts, strict=True)]

    def select(self, rows: Sequence[int]) -> None:
        self.lengths = [self.lengths[row] for row in rows]
        for layer in self.layers:
            assert isinstance(layer, RaggedLayerCache)
            layer.select(rows)


class RaggedLayerCache(LayerCache):
    """One layer of it."""

    def __init__(self, owner: RaggedDrafterCache) -> None:
        super().__init__()
        self._owner = owner

    def extend(
        self,
        keys: Float[Tensor, "b new heads d"],
        values: Float[Tensor, "b new heads d"],
        *,
        num_context: int,
    ) -> tuple[Float[Tensor, "b all heads d"], Float[Tensor, "b all heads d"]]:
        """[context of the longest row ; block]: the drafter's mask hides what a shorter row does not have."""
        self._keys = self._stored(self._keys, keys)
        self._values = self._stored(self._values, values)
        longest = max(self._owner.lengths)
        self.length = longest
        return (
            torch.cat((self._keys[:, :longest], keys[:, num_context:]), dim=1),
            torch.cat((self._values[:, :longest], values[:, num_context:]), dim=1),
        )

    def select(self, rows: Sequence[int]) -> None:
        if self._keys is not None and self._values is not None:
            index = torch.tensor(rows, device=self._keys.device)
            self._keys, self._values = self._keys[index], self._values[index]

    def _stored(self, buffer: Tensor | None, new: Tensor) -> Tensor:
        owner = self._owner
        # Zeros, not garbage, where nothing was written: a masked NaN would still be a NaN in the sum.
        larger = grown(buffer, new, max(owner.lengths), zeros=True)
        rows, places, columns = (index.to(new.device) for index in (owner.rows, owner.places, owner.columns))
        larger[rows, columns] = new[rows, places]
        return larger
