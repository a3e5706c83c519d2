"""Whether one optimizer window pulls where the last one pulled: the test of "gradient whiplash"."""

from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch.optim import Optimizer

from dflash_lightning.training.module import DFlashModule
from dflash_lightning.training.watch.grad_direction import DirectionTotals, MicroSketches, Snapshot, compare
from dflash_lightning.training.watch.projection import Projection


class GradDirection(Callback):
    """Compares the gradients of two consecutive windows, every so many steps, before clipping.

    `direction/cosine` and `direction/cosine_min`: mean and lowest cosine of the pairs since the last log;
    `direction/noise_scale`: loss weight of a window whose gradient holds as much noise as signal, over the
    last `running_pairs` pairs. Equal on all ranks. A skipped step breaks its pair.

    Gradients are compared in a fixed random projection, which costs 6 MB, one or two passes over the
    gradients at 2 of `every_n_steps` steps, and 0.003 of accuracy in a cosine.

    Args:
        every_n_steps: Steps from one pair to the next; 1 compares every step with the one before.
        running_pairs: Pairs after which the noise scale has forgotten one to 1/e.
        micro: Also log `direction/micro_cosine`, the mean cosine of neighbouring micro-batches inside a
            window, at the second step of each pair. They are compared before the all-reduce, each rank its
            own: on several ranks without the last one, whose gradient has then been averaged with others.
    """

    def __init__(self, every_n_steps: int = 10, running_pairs: int = 20, micro: bool = False) -> None:
        for name, value in (("every_n_steps", every_n_steps), ("running_pairs", running_pairs)):
            if value < 1:
                raise ValueError(f"GradDirection.{name} must be at least 1, got {value}")
        self.every_n_steps = every_n_steps
        self.running_pairs = running_pairs
        self.micro = micro
        self._begin()

    def _begin(self) -> None:
        self._totals = DirectionTotals(self.running_pairs)
        self._before: Snapshot | None = None
        self._projection: Projection | None = None
        self._sketch: Tensor | None = None
        self._micro = MicroSketches()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if isinstance(trainer.strategy, ModelParallelStrategy):
            raise ValueError(
                "GradDirection needs the whole gradient, and ModelParallelStrategy gives each rank a part of "
                "it: take the callback out, or train with strategy: ddp"
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        self._projection = None  # of another drafter, if one object serves several runs
        if not pl_module.data.position.steps:
            self._begin()

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        if self.micro and _step(pl_module) % self.every_n_steps == 0 and _is_own_gradient(trainer):
            self._micro.add(self._project(pl_module))

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """The window's gradient, averaged over ranks, not yet normalised or clipped."""
        assert isinstance(pl_module, DFlashModule)
        step = _step(pl_module)
        if step % self.every_n_steps == 0 or (step + 1) % self.every_n_steps == 0:
            self._sketch = self._project(pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, DFlashModule)
        record = pl_module.last_step
        if not pl_module.step_finished or record is None:
            return
        now, before = None, self._before
        if self._sketch is not None and not record.skipped:
            now = Snapshot(step=record.step, sketch=self._sketch, scale=record.scale, weight=record.weight)
            self._totals.add_micro(self._micro.cosines)
        if now and before and now.step == before.step + 1 and now.step % self.every_n_steps == 0:
            self._totals.add(compare(before, now))
        self._before, self._sketch, self._micro = now, None, MicroSketches()
        if pl_module.log_now:
            pl_module.log_dict(self._totals.take(self._micro_of_all_ranks(trainer, pl_module)))

    def _micro_of_all_ranks(self, trainer: Trainer, module: DFlashModule) -> Tensor | None:
        if not self.micro:
            return None
        summed = trainer.strategy.reduce(self._totals.micro.to(module.device), reduce_op="sum")
        assert isinstance(summed, Tensor)
        return summed

    def _project(self, module: DFlashModule) -> Tensor:
        assert module.drafter is not None
        parameters = list(module.drafter.parameters())
        if self._projection is None:
            self._projection = Projection([p.numel() for p in parameters])
        return self._projection(p.grad for p in parameters)

    def state_dict(self) -> dict[str, Any]:
        """With the sketch that waits for its second: 1 MB, in the checkpoints between the two only."""
        waits = self._before is not None and (self._before.step + 1) % self.every_n_steps == 0
        before = vars(self._before) if self._before is not None and waits else None
        return {"totals": self._totals.state_dict(), "before": before}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._totals.load_state_dict(state_dict["totals"])
        self._before = Snapshot(**state_dict["before"]) if state_dict["before"] else None


def _step(module: DFlashModule) -> int:
    """The optimizer step that is being worked on, counted from 1."""
    return module.data.position.steps + 1


def _is_own_gradient(trainer: Trainer) -> bool:
    """False where DDP has averaged the gradient over ranks: behind a window's last micro-batch."""
    return trainer.world_size == 1 or trainer.fit_loop.epoch_loop._should_accumulate()
