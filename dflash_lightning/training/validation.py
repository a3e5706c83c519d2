"""Teacher-forced validation: every anchor of every held-out sample, in bounded memory.

law   a batch's anchors run in groups of at most max_block_tokens block positions; sums only, reduced once at
      the end, so ranks may hold unequal numbers of batches and 1 or 2 ranks give the same values
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from lightning import Trainer
from torch import Tensor
from torchmetrics import Metric

from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.objective.acceptance import Acceptance, TreeAcceptance
from dflash_lightning.training.forward import BlockOutcome


def anchor_groups(batch: TokenBatch, *, block_size: int, max_block_tokens: int) -> Iterator[TokenBatch]:
    """The same rows with a slice of their anchors at a time; 0 means no limit."""
    rows, slots = batch.anchors.shape
    width = max(1, max_block_tokens // (rows * block_size)) if max_block_tokens else slots
    for start in range(0, slots, width):
        part = slice(start, start + width)
        yield replace(batch, anchors=batch.anchors[:, part], keep=batch.keep[:, part])


def forget_validation(trainer: Trainer) -> None:
    """Take the last validation's values out of what Lightning keeps: one that is not measured again, such as
    a decoded acceptance length every other time, is none of the weights of now."""
    for name in [name for name in trainer.callback_metrics if name.startswith("val/")]:
        trainer.callback_metrics.pop(name)


class WeightedLoss(Metric):
    """Sum of weight x loss over sum of weights; float64, summed over ranks once, in compute()."""

    full_state_update = False
    numerator: Tensor
    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("numerator", "weight"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, outcome: BlockOutcome) -> None:
        self.numerator += outcome.numerator.double()
        self.weight += outcome.weight.sum(dtype=torch.float64)

    def compute(self) -> Tensor:
        return self.numerator / self.weight


class ValidationSums(torch.nn.Module):
    """Everything a validation run adds up; `ratios` gives the values to log."""

    def __init__(self, block_size: int, tree_budgets: Sequence[int] = ()) -> None:
        super().__init__()
        self.loss = WeightedLoss()
        self.acceptance = Acceptance(block_size)
        self.trees = TreeAcceptance(tree_budgets) if tree_budgets else None

    def update(self, outcome: BlockOutcome) -> None:
        self.loss.update(outcome)
        self.acceptance.update(outcome.correct, outcome.supervised)
        if self.trees is not None and outcome.tree_streaks is not None:
            self.trees.update(outcome.tree_streaks, outcome.supervised)

    def ratios(self, stage: str) -> dict[str, Tensor]:
        """`{stage}/` loss, tau, streak, accuracy, accuracy_slot_{k}, tree_tau_{M}. A collective: call it on
        all ranks."""
        trees = {} if self.trees is None else self.trees.compute()
        values = {"loss": self.loss.compute(), **self.acceptance.compute(), **trees}
        return {f"{stage}/{name}": value for name, value in values.items()}

    def reset(self) -> None:
        self.loss.reset()
        self.acceptance.reset()
        if self.trees is not None:
            self.trees.reset()
