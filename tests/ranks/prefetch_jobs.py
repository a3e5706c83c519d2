"""Runs whose target takes another time for every batch, on devices of its own."""

import random
import threading
import time
from dataclasses import replace
from typing import Any

from lightning import Callback

from dflash_lightning.target.dispatch import PrefetchPolicy
from tests.ranks import jobs


class Jitter(Callback):
    """Makes every worker of the pipeline sleep for a while of its own, and keeps what was counted."""

    def __init__(self, most: float) -> None:
        self.most = most
        self.counts: list[int] = []

    def on_fit_start(self, trainer, pl_module):
        if (pipeline := pl_module.pipeline) is not None:
            seeds = range(100 * trainer.global_rank, 100 * trainer.global_rank + 100)
            pipeline._workers = [self._slowed(*pair) for pair in zip(pipeline._workers, seeds, strict=False)]

    def _slowed(self, worker, seed):
        times = random.Random(seed)

        def slowed(batch):
            time.sleep(self.most * times.random())
            return worker(batch)

        return slowed

    def on_train_end(self, trainer, pl_module):
        if pl_module.pipeline is not None:
            self.counts = [device.total for device in pl_module.pipeline.counters().devices]


def fit(
    root: str,
    target: str,
    store: str,
    *,
    devices: int,
    policy: dict[str, Any],
    most: float = 0.02,
    **options: Any,
) -> dict[str, Any]:
    """jobs.fit, and batches by target device, and the threads that are left."""
    jitter = Jitter(most)
    module = {"target_devices": devices, "prefetch": replace(PrefetchPolicy(), **policy)}
    result = jobs.fit(root, target, store, module=module, extra=[jitter], **options)
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")]
    return {**result, "dispatched": jitter.counts, "threads": left}
