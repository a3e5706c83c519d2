"""AdamW, and the learning rate as a function of the share of the run that is done.

law   the rate knows no step count and keeps no state: it is continuous when a run resumes on another world
      size, and what the YAML says is used, whatever a checkpoint remembers
"""

import math
from dataclasses import dataclass

import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import nn


@dataclass(frozen=True, kw_only=True)
class AdamWConfig:
    """AdamW with linear warm-up and a cosine (spec/dflash.md section 3)."""

    lr: float = 6e-4
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    """Applied to matrices only, not to norms."""
    warmup_fraction: float = 0.04
    """Share of the run over which the rate rises from 0 to its peak."""
    min_lr_fraction: float = 0.0
    """Where the cosine ends, as a share of the peak."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"model.lr must be a positive number, got {self.lr}")
        if not 0 <= self.warmup_fraction < 1:
            raise ValueError(
                f"model.warmup_fraction is a share of the run, 0 up to 1, got {self.warmup_fraction}"
            )
        if not 0 <= self.min_lr_fraction <= 1:
            raise ValueError(
                f"model.min_lr_fraction is a share of model.lr, 0 to 1, got {self.min_lr_fraction}"
            )

    def rate(self, share_done: float) -> float:
        """Learning rate when `share_done` (0 to 1) of the run's batches are done; held at its end beyond."""
        share = min(max(share_done, 0.0), 1.0)
        if share < self.warmup_fraction:
            return self.lr * share / self.warmup_fraction
        angle = math.pi * (share - self.warmup_fraction) / (1 - self.warmup_fraction)
        floor = self.lr * self.min_lr_fraction
        return floor + (self.lr - floor) * (1 + math.cos(angle)) / 2

    def build(self, module: nn.Module) -> torch.optim.AdamW:
        """AdamW over the trainable parameters of `module`, matrices in the first group."""
        parameters = [p for p in module.parameters() if p.requires_grad]
        matrices = [p for p in parameters if p.ndim >= 2]
        vectors = [p for p in parameters if p.ndim < 2]
        groups = [{"params": matrices}, {"params": vectors}]
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps, fused=True)

    def apply(self, optimizer: torch.optim.Optimizer | LightningOptimizer, share_done: float) -> float:
        """Set everything the YAML decides, before a step; returns the rate."""
        rate = self.rate(share_done)
        for group, decay in zip(optimizer.param_groups, (self.weight_decay, 0.0), strict=True):
            group.update(lr=rate, betas=self.betas, eps=self.eps, weight_decay=decay)
        return rate
