"""A callback for runs that are signalled from outside: says where each rank is, and leaves time to hit it."""

import json
import os
import time
from pathlib import Path

from lightning import Callback


class Watched(Callback):
    """Writes one line a micro-batch to `folder`/rank<r>.jsonl, and the finished run to final.ckpt.

    Args:
        folder: Where to write.
        delay: Seconds that each micro-batch is held up.
        fast: After this many micro-batches each is held up for three seconds.
    """

    def __init__(self, folder: str, delay: float = 0.0, fast: int | None = None) -> None:
        self.folder = Path(folder)
        self.delay = delay
        self.fast = fast

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self._write(trainer, "start", pl_module)
        if self.fast is not None:
            self.fast -= 1
        time.sleep(self.delay if self.fast is None or self.fast >= 0 else 3.0)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self._write(trainer, "end", pl_module)

    def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx=0):
        self._write(trainer, "validation", pl_module)
        time.sleep(self.delay)

    def on_train_end(self, trainer, pl_module):
        trainer.save_checkpoint(self.folder / "final.ckpt")

    def _write(self, trainer, event, pl_module):
        self.folder.mkdir(parents=True, exist_ok=True)
        record = {
            "event": event,
            "steps": pl_module.data.position.steps,
            "pid": os.getpid(),
            "at": time.monotonic(),
        }
        with (self.folder / f"rank{trainer.global_rank}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
