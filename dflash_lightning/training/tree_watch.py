"""What trees of drafts would have kept of the anchors that are trained on, every so many optimizer steps.

in    BlockOutcome of each micro-batch of a step that is due
out   `train/streak`, `train/tree_streak_{M}` (both without the target's own token) and their ratio
      `train/tree_over_streak_{M}`
law   only integer sums travel, once per step that is due: 1 and 2 ranks give the same values
law   what waits for a log travels with the checkpoint: a resumed run logs as one that never stopped
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dflash_lightning.objective.acceptance import streaks
from dflash_lightning.training.forward import BlockOutcome
from dflash_lightning.training.window_sums import Reduce


def require_budgets(budgets: Sequence[int], every_n_steps: int) -> None:
    """Budgets are distinct counts of nodes, and the interval one of steps; 0 means never."""
    if len(set(budgets)) != len(budgets) or min(budgets, default=1) < 1:
        raise ValueError(
            f"tree_budgets counts the nodes of trees, each at least 1 and once, got {list(budgets)}"
        )
    if every_n_steps < 0:
        raise ValueError(f"tree_every_n_steps counts optimizer steps, 0 for never, got {every_n_steps}")


class TreeWatch:
    """Sums over the steps that were due since the last log."""

    def __init__(self, budgets: Sequence[int], every_n_steps: int) -> None:
        require_budgets(budgets, every_n_steps)
        self.budgets, self.every_n_steps = tuple(budgets), every_n_steps
        self._parts: list[Tensor] = []
        self._totals = [0.0] * (2 + len(budgets))

    def due(self, step: int) -> tuple[int, ...]:
        """The budgets to look at in this optimizer step, counted from 1; none where it is not due."""
        return self.budgets if self.every_n_steps and step % self.every_n_steps == 0 else ()

    def add(self, outcome: BlockOutcome) -> None:
        """A micro-batch; nothing is read back from the device."""
        if outcome.tree_streaks is not None:
            self._parts.append(tree_sums(outcome))

    def finish(self, reduce: Reduce, *, skipped: bool) -> None:
        """The optimizer step is done: sum over its micro-batches and all ranks. A skipped step counts for
        nothing."""
        if self._parts and not skipped:
            everyone = reduce(torch.stack(self._parts).sum(0)).tolist()
            self._totals = [one + other for one, other in zip(self._totals, everyone, strict=True)]
        self._parts = []

    def take(self) -> dict[str, float]:
        """The values since the last call; none where no step was due or nothing was supervised."""
        blocks, streak, *trees = self._totals
        self._totals = [0.0] * len(self._totals)
        if not blocks:
            return {}
        values = {"train/streak": streak / blocks}
        for budget, kept in zip(self.budgets, trees, strict=True):
            values[f"train/tree_streak_{budget}"] = kept / blocks
            values[f"train/tree_over_streak_{budget}"] = kept / streak if streak else math.nan
        return values

    def state_dict(self) -> dict[str, Any]:
        return {"budgets": list(self.budgets), "totals": self._totals}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["budgets"] == list(self.budgets):  # sums of other trees start anew
            self._totals = list(state["totals"])


def tree_sums(outcome: BlockOutcome) -> Tensor:
    """Blocks with supervision, drafted tokens a chain would keep of them, and a tree of each budget: float64,
    on the device."""
    assert outcome.tree_streaks is not None
    blocks = outcome.supervised.any(-1)
    chain = (streaks(outcome.correct, outcome.supervised) * blocks).sum()
    trees = outcome.tree_streaks.flatten(end_dim=-2).sum(0)
    return torch.cat((torch.stack((blocks.sum(), chain)), trees)).double()
