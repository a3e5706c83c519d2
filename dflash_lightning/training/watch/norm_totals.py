"""Gradient norms since the last log, their running mean, and how a norm splits over the drafter.

in    StepRecord of every optimizer step; on request the raw gradients
law   squares of the groups' norms add up to the square of the whole norm
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dflash_lightning.training.normalize import StepRecord


def group_of(name: str) -> str:
    """Group of a drafter's parameter: "layer_3" with all in it, "norms" outside the layers, else the module.

    Example: group_of("layers.3.mlp.up_proj.weight") == "layer_3"; group_of("fc.weight") == "fc".
    """
    if layer := re.match(r"layers\.(\d+)\.", name):
        return f"layer_{layer[1]}"
    module = name.rsplit(".", 1)[0]
    return "norms" if "norm" in module else module


def group_norms(groups: Mapping[str, Sequence[Tensor]]) -> Tensor:
    """L2 norm of each group's gradients, fp32 [groups]: one pass, nothing is read back."""
    flat = [tensor for tensors in groups.values() for tensor in tensors]
    norms = torch.stack([norm.float() for norm in torch._foreach_norm(flat)])
    parts = torch.split(norms, [len(tensors) for tensors in groups.values()])
    return torch.stack([torch.linalg.vector_norm(part) for part in parts])


@dataclass
class NormTotals:
    """What GradNorm shows. Skipped steps are in none of it."""

    running_steps: int
    steps: int = 0
    norm: float = 0.0
    clipped: int = 0
    groups: dict[str, float] = field(default_factory=dict)
    """Sums of the groups' norms since the last log."""
    average: float = 0.0
    weight: float = 0.0

    def add(self, step: StepRecord, groups: Mapping[str, float]) -> None:
        """Count one optimizer step; `groups`: norm of each group after normalisation, before clipping."""
        if step.skipped:
            return
        self.steps += 1
        self.norm += step.norm
        self.clipped += step.clip_factor < 1
        self.groups = {name: self.groups.get(name, 0.0) + norm for name, norm in groups.items()}
        keep = 1 - 1 / self.running_steps
        self.average = keep * self.average + (1 - keep) * step.norm
        self.weight = keep * self.weight + (1 - keep)

    def take(self) -> dict[str, float]:
        """Means since the last call, which starts the next stretch; the running mean goes on."""
        steps = self.steps or math.nan
        values = {
            "train/grad_norm": self.norm / steps,
            "train/grad_norm_running": self.average / self.weight if self.weight else math.nan,
            "train/clipped_pct": 100.0 * self.clipped / steps,
            **{f"grad_norm/{name}": total / steps for name, total in self.groups.items()},
        }
        self.steps, self.norm, self.clipped = 0, 0.0, 0
        self.groups = dict.fromkeys(self.groups, 0.0)
        return values

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "running_steps"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
