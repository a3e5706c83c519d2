"""Sample ids -> TokenBatch: pad the rows and draw their anchors.

in    a RankBatch of the plan (ids of one bucket, padded length), the token store, (seed, epoch)
out   TokenBatch, on the CPU
law   a sample's anchors depend on (seed, epoch, sample id) alone: never on rank, worker, batch mates or
      resume
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.data.split import Split
from dflash_lightning.data.store import TokenStore
from dflash_lightning.drafter.anchors import draw_anchors, valid_anchors
from dflash_lightning.plan.windows import RankBatch

IntArray = npt.NDArray[np.int64]
AnchorSlots = Literal["batch_max", "fixed"]


@dataclass(frozen=True)
class AnchorRule:
    """Which positions of a sample become anchors. `num_anchors` None: all valid ones (validation)."""

    num_anchors: int | None
    slots: AnchorSlots
    seed: int
    epoch: int

    def anchors(self, loss_mask: npt.NDArray[np.uint8], sample_id: int) -> IntArray:
        if self.num_anchors is None:
            return valid_anchors(loss_mask)
        return draw_anchors(
            loss_mask, self.num_anchors, seed=self.seed, epoch=self.epoch, sample_id=sample_id
        )

    def width(self, drawn: Sequence[IntArray]) -> int:
        """Anchor slots of a batch: at least one, so that every rank's drafter runs in every micro-step."""
        if self.slots == "fixed" and self.num_anchors is not None:
            return self.num_anchors
        return max(1, *(len(anchors) for anchors in drawn))


class BatchDataset(Dataset[TokenBatch]):
    """Indexed by a whole RankBatch, so that padding and anchors are made in the DataLoader's workers."""

    def __init__(self, store: TokenStore, split: Split, rule: AnchorRule, *, pad_token_id: int) -> None:
        self.store = store
        self.split = split
        self.rule = rule
        self.pad_token_id = pad_token_id

    def __getitem__(self, batch: RankBatch) -> TokenBatch:
        ids = [int(i) for i in batch.sample_ids]
        rows = [self.store.row(self.split, ~i if i < 0 else i) for i in ids]
        # A ghost is a copy without supervision; truncation keeps the head of a row, as the plan counted it.
        tokens = [np.asarray(row)[: batch.padded_length] for row, _ in rows]
        masks = [np.asarray(m)[: batch.padded_length] * (i >= 0) for (_, m), i in zip(rows, ids, strict=True)]
        drawn = [self.rule.anchors(mask, i) for mask, i in zip(masks, ids, strict=True)]
        width = self.rule.width(drawn)
        return TokenBatch(
            input_ids=_padded(tokens, batch.padded_length, self.pad_token_id),
            loss_mask=_padded(masks, batch.padded_length, 0).bool(),
            lengths=torch.tensor([len(row) for row in tokens]),
            anchors=_padded(drawn, width, 0),
            keep=torch.arange(width) < torch.tensor([len(anchors) for anchors in drawn])[:, None],
            sample_ids=torch.tensor(ids),
            bucket=batch.bucket,
            split=self.split,
        )


def _padded(rows: Sequence[npt.NDArray[np.integer]], width: int, value: int) -> torch.Tensor:
    out = np.full((len(rows), width), value, dtype=np.int64)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return torch.from_numpy(out)
