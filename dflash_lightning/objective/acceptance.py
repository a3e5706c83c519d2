"""How many drafted tokens would have been kept: the number a drafter is for.

in    correct, supervised [.., B-1] bool per slot; streaks in trees from tree_acceptance.py
out   streak per block; over a run tau (streak + 1, the target's own token included) and accuracy per slot
law   everything is a ratio of integer sums, so any split over batches and ranks gives the same value
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torchmetrics import Metric


def streaks(
    correct: Bool[Tensor, "*blocks slots"], supervised: Bool[Tensor, "*blocks slots"]
) -> Int[Tensor, "*blocks"]:
    """Supervised slots before the first supervised miss, per block. An unsupervised slot breaks nothing."""
    unbroken = (correct | ~supervised).long().cumprod(dim=-1)
    return (unbroken * supervised).sum(dim=-1)


class Acceptance(Metric):
    """Teacher-forced acceptance over blocks of `block_size` slots; those without supervision do not count.

    compute() returns tau, streak, accuracy and accuracy_slot_1 .. accuracy_slot_{B-1}, NaN where nothing was
    counted. tau is the mean of streak + 1 over blocks, in 1..B. Source: spec/dflash.md 2.9.
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = True

    num_blocks: Tensor
    num_kept: Tensor
    num_correct: Tensor
    num_supervised: Tensor

    def __init__(self, block_size: int) -> None:
        super().__init__()
        for name in ("num_blocks", "num_kept"):
            self.add_state(name, torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")
        for name in ("num_correct", "num_supervised"):
            self.add_state(name, torch.zeros(block_size - 1, dtype=torch.long), dist_reduce_fx="sum")

    def update(
        self, correct: Bool[Tensor, "*blocks slots"], supervised: Bool[Tensor, "*blocks slots"]
    ) -> None:
        """Count these blocks."""
        self.num_blocks += supervised.any(dim=-1).sum()
        self.num_kept += streaks(correct, supervised).sum()
        self.num_correct += (correct & supervised).flatten(end_dim=-2).sum(dim=0)
        self.num_supervised += supervised.flatten(end_dim=-2).sum(dim=0)

    def compute(self) -> dict[str, Tensor]:
        """The ratios, as float64 scalars."""
        streak = self.num_kept.double() / self.num_blocks
        per_slot = self.num_correct.double() / self.num_supervised
        overall = self.num_correct.sum().double() / self.num_supervised.sum()
        slots = {f"accuracy_slot_{k}": value for k, value in enumerate(per_slot.unbind(), start=1)}
        return {"tau": streak + 1, "streak": streak, "accuracy": overall, **slots}


class TreeAcceptance(Metric):
    """Teacher-forced acceptance of trees of drafts, one for each budget of nodes.

    compute() returns tree_tau_{M} for every budget M, the mean of streak + 1 over blocks with supervision;
    NaN where there was none.
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = True

    num_blocks: Tensor
    num_kept: Tensor

    def __init__(self, budgets: Sequence[int]) -> None:
        super().__init__()
        self.budgets = tuple(budgets)
        self.add_state("num_blocks", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("num_kept", torch.zeros(len(budgets), dtype=torch.long), dist_reduce_fx="sum")

    def update(
        self, streak: Int[Tensor, "*blocks budgets"], supervised: Bool[Tensor, "*blocks slots"]
    ) -> None:
        """Count these blocks; those without supervision have streak 0."""
        self.num_blocks += supervised.any(dim=-1).sum()
        self.num_kept += streak.flatten(end_dim=-2).sum(dim=0)

    def compute(self) -> dict[str, Tensor]:
        """The ratios, as float64 scalars."""
        tau = self.num_kept.double() / self.num_blocks + 1
        return {f"tree_tau_{budget}": value for budget, value in zip(self.budgets, tau, strict=True)}
