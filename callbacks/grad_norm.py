"""The gradient norm before clipping; after clipping it would be a constant."""

from typing import Any

from lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from dflash_lightning.training.module import DFlashModule
from dflash_lightning.training.watch.norm_totals import NormTotals, group_norms, group_of


class GradNorm(Callback):
    """Logs, over all optimizer steps since the last log, skipped ones left out: `train/grad_norm`, the mean
    global norm before clipping, and `train/clipped_pct`, the percent of steps that were clipped; beside them
    `train/grad_norm_running`, a mean that forgets.

    It reads what normalisation and clipping computed: no second pass over the gradients, unless `groups`.

    Args:
        running_steps: Steps after which the running mean has forgotten a norm to 1/e.
        groups: Also log `grad_norm/{group}`, the mean norm of each layer (`layer_0`, ...), of `fc` and of the
            `norms` outside the layers. Costs one more pass over the gradients a step.
    """

    def __init__(self, running_steps: int = 100, groups: bool = False) -> None:
        if running_steps < 1:
            raise ValueError(f"GradNorm.running_steps must be at least 1, got {running_steps}")
        self.running_steps = running_steps
        self.groups = groups
        self._totals = NormTotals(running_steps)
        self._names: list[str] = []
        self._raw: Tensor | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        if not pl_module.data.position.steps:  # nothing of a run before, if one object serves several
            self._totals, self._raw = NormTotals(self.running_steps), None

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        assert isinstance(pl_module, DFlashModule)
        if not self.groups or pl_module.drafter is None:
            return
        grouped: dict[str, list[Tensor]] = {}
        for name, parameter in pl_module.drafter.named_parameters():
            if parameter.grad is not None:
                grouped.setdefault(group_of(name), []).append(parameter.grad)
        self._names, self._raw = list(grouped), group_norms(grouped)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, DFlashModule)
        step = pl_module.last_step
        if not pl_module.step_finished or step is None:
            return
        raw = self._raw.tolist() if self._raw is not None else []
        self._totals.add(step, {name: step.scale * n for name, n in zip(self._names, raw, strict=True)})
        if pl_module.log_now:
            pl_module.log_dict(self._totals.take())

    def state_dict(self) -> dict[str, Any]:
        return self._totals.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._totals.load_state_dict(state_dict)
