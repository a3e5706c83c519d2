"""What all callbacks cost: step time of the demo with and without them, in turns within one run.

A run of `configs/demo.yaml` whose observing callbacks are switched on and off every few steps: segments of
both kinds meet the same machine, the same data and the same weights. (What Throughput reads its times from
runs in both.)

    OMP_NUM_THREADS=1 python benchmarks/callback_overhead.py --config configs/demo.yaml --steps 170
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lightning import Callback

from dflash_lightning.callbacks.acceptance import Acceptance
from dflash_lightning.callbacks.bucket_mix import BucketMix
from dflash_lightning.callbacks.grad_direction import GradDirection
from dflash_lightning.callbacks.grad_norm import GradNorm
from dflash_lightning.callbacks.loss_bands import LossBands
from dflash_lightning.callbacks.step_guard import StepGuard
from dflash_lightning.callbacks.throughput import Throughput
from dflash_lightning.lightning_cli import parse_cli

HOOKS = ("on_train_batch_end", "on_after_backward", "on_before_optimizer_step")
"""What callbacks do at every step; the rest comes once a run, an epoch or a validation."""


@dataclass(frozen=True)
class Segment:
    """A stretch of steps of one kind. Seconds of a thousand padded tokens, on the clock and of this process's
    CPU: stretches hold batches of other lengths."""

    watched: bool
    wall: float
    cpu: float


class Turns(Callback):
    """Times the run, and switches the hooks of `watched` on and off every `length` steps."""

    def __init__(self, watched: list[Callback], length: int) -> None:
        self.length = length
        self.segments: list[Segment] = []
        self.inside = 0.0
        """CPU seconds in the hooks of `watched`; what loggers do with more values comes on top."""
        self._steps = self._tokens = 0
        self._on = True
        self._started = (0.0, 0.0)
        self.watched = 0.0
        """CPU seconds of the segments with callbacks."""
        for callback in watched:
            for hook in HOOKS:
                setattr(callback, hook, self._gated(getattr(callback, hook)))

    def _gated(self, hook: Callable[..., None]) -> Callable[..., None]:
        def gated(*arguments: Any, **options: Any) -> None:
            if self._on:
                started = time.process_time()
                hook(*arguments, **options)
                self.inside += time.process_time() - started

        return gated

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Behind the logging of the step before, and in front of the next one."""
        if self._steps % self.length == 0:
            now = (time.perf_counter(), time.process_time())
            if self._steps:
                wall, cpu = (
                    1e3 * (end - start) / self._tokens for start, end in zip(self._started, now, strict=True)
                )
                self.watched += self._on * (now[1] - self._started[1])
                self.segments.append(Segment(self._on, wall, cpu))
                self._on = not self._on
            self._started, self._tokens = now, 0
        self._steps += 1
        self._tokens += batch[0].input_ids.numel()


def measure(config: str, steps: int, length: int, *extra: str) -> Turns:
    """One run in segments of `length` steps, with callbacks and without by turns."""
    watched = [
        GradNorm(), BucketMix(), LossBands(), GradDirection(), StepGuard(), Throughput(), Acceptance()
    ]  # fmt: skip
    turns = Turns(watched, length)
    with tempfile.TemporaryDirectory() as folder:
        words = [
            f"--config={config}", "--trainer.callbacks=[]", f"--trainer.max_steps={steps + 1}",
            "--trainer.accumulate_grad_batches=1", "--trainer.limit_val_batches=0",
            "--trainer.enable_progress_bar=false", "--trainer.enable_checkpointing=false",
            f"--trainer.default_root_dir={folder}", f"--trainer.logger.save_dir={folder}", *extra,
        ]  # fmt: skip
        cli = parse_cli(words)
        cli.trainer.callbacks += [*watched, turns]
        cli.trainer.fit(cli.model, cli.datamodule)
    return turns


def report(segments: list[Segment], clock: str) -> str:
    """Each segment with callbacks over the mean of its two neighbours without: median and middle half."""
    seconds = [getattr(segment, clock) for segment in segments]
    # The first one with callbacks warms up.
    inner = [i for i, s in enumerate(segments) if s.watched and 0 < i < len(segments) - 1]
    ratios = [2 * seconds[i] / (seconds[i - 1] + seconds[i + 1]) for i in inner]
    low, middle, high = statistics.quantiles(ratios, n=4)
    alone = statistics.median(seconds[i] for i, s in enumerate(segments) if not s.watched)
    return (
        f"{clock}: with / without callbacks {middle:.3f} (middle half {low:.3f} to {high:.3f}, "
        f"{len(ratios)} pairs of segments; a thousand padded tokens without take {1000 * alone:.0f} ms)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", default="configs/demo.yaml")
    parser.add_argument("--steps", type=int, default=170)
    parser.add_argument("--segment", type=int, default=10, help="steps with callbacks, then as many without")
    parser.add_argument("extra", nargs="*", help="more words for `fit`")
    options = parser.parse_args()
    torch.set_num_threads(1)
    turns = measure(options.config, options.steps, options.segment, *options.extra)
    for clock in ("wall", "cpu"):
        print(report(turns.segments, clock))
    # Noise hides a small difference between segments: it is seen best in the hooks themselves.
    print(f"hooks alone: {turns.watched / (turns.watched - turns.inside):.4f} of the CPU time without them")


if __name__ == "__main__":
    main()
