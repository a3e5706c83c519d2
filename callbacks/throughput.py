"""How fast training is, what it waits for, and how much memory it takes."""

from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from dflash_lightning.training.module import DFlashModule
from dflash_lightning.training.watch.host_memory import GIB, peak_host_gib
from dflash_lightning.training.watch.step_clock import OUTSIDE, StepClock, listen, stop_listening
from dflash_lightning.training.watch.throughput import ThroughputSums


class Throughput(Callback):
    """Logs, over all optimizer steps since the last log, skipped ones included, validation left out:

        throughput/tokens_per_s, padded_tokens_per_s, samples_per_s   of all ranks together
        throughput/step_s                                             seconds of an optimizer step
        time/data_pct       waiting for the next batch
        time/target_pct     the target's forward pass, with the batch's way to the device; where the target
                            runs ahead (model.prefetch), what is left of it: the wait for its states
        time/drafter_pct    the drafter's forward and backward pass, and with it the wait for slower ranks:
                            they meet where gradients are averaged
        time/optimizer_pct  window sums, normalisation, clipping, the optimizer's step
        time/storage_pct    training stands still for a checkpoint
        time/other_pct      everything else: callbacks, logging, planning the next epoch
        memory/host_gib     largest resident memory of this process so far
        memory/device_gib   largest memory allocated on the training GPU so far; 0 without a GPU

    The shares sum to 100. Times and memory are rank 0's. On a GPU they are times of its queue, taken without
    waiting for it, so that "data" is what the GPU waited for data.
    """

    def __init__(self) -> None:
        self._clock: StepClock | None = None
        self._before: dict[str, float] = {}
        self._sums = ThroughputSums()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DFlashModule)
        if not pl_module.data.position.steps:  # nothing of a run before, if one object serves several
            self._sums = ThroughputSums()
        self._clock = listen(trainer)
        self._before = self._clock.read()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._clock:
            self._clock.enter(OUTSIDE)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._clock:
            self._clock.leave()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, DFlashModule)
        if not pl_module.step_finished or pl_module.last_window is None or self._clock is None:
            return
        now = self._clock.read()
        self._sums.add(pl_module.last_window, {stage: now[stage] - self._before[stage] for stage in now})
        self._before = now
        if pl_module.log_now:
            pl_module.log_dict({**self._sums.values(), **memory(trainer.strategy.root_device)})
            self._sums = ThroughputSums()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stop(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._stop(trainer)

    def _stop(self, trainer: Trainer) -> None:
        stop_listening(trainer)
        self._clock = None

    def state_dict(self) -> dict[str, Any]:
        return self._sums.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._sums = ThroughputSums(**state_dict)


def memory(device: torch.device) -> dict[str, float]:
    """Largest use so far, in GiB."""
    used = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    return {"memory/host_gib": peak_host_gib(), "memory/device_gib": used / GIB}
