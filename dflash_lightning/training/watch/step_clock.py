"""Where the time of training goes: one stage at a time, like a stopwatch with many dials.

in    the actions that Lightning announces to its profiler: fetch, transfer, step, backward, save, ...
out   seconds by stage since the clock was started
law   every moment belongs to exactly one stage, so shares sum to 1; nothing waits for the device
"""

import time
from collections import deque
from typing import Any, Protocol, runtime_checkable

import torch
from lightning import Trainer
from lightning.pytorch.profilers import Profiler

STAGES = ("data", "target", "drafter", "optimizer", "storage", "other")
OUTSIDE = "outside"
"""Time that is not training: validation."""

STAGE_OF = {
    "train_dataloader_next": "data",
    "batch_to_device": "target",  # the target runs right behind the transfer
    "wait_for_states": "target",  # of a prefetch pipeline (prefetching_loader.py)
    "training_step": "drafter",
    "backward": "drafter",
    "optimizer_step": "optimizer",  # what runs inside it announces itself
    "save_checkpoint": "storage",
}
"""By the last part of an action's name. Other code announces with `trainer.profiler.profile(name)`."""


@runtime_checkable
class Timer(Protocol):
    """Marks on a line of time. On a GPU a mark is a place in its queue, known only when it gets there."""

    def mark(self) -> Any: ...
    def reached(self, mark: Any) -> bool: ...
    def seconds(self, start: Any, stop: Any) -> float: ...


class HostTimer:
    """The time of this process: for devices that work while it waits."""

    def mark(self) -> float:
        return time.perf_counter()

    def reached(self, mark: float) -> bool:
        return True

    def seconds(self, start: float, stop: float) -> float:
        return stop - start


class CudaTimer:
    """The time of the GPU's queue, in which the process runs ahead: a wait for data counts from when the GPU
    had nothing left to do, not from when the process began to wait."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def reached(self, mark: torch.cuda.Event) -> bool:
        return bool(mark.query())  # type: ignore[no-untyped-call]

    def seconds(self, start: torch.cuda.Event, stop: torch.cuda.Event) -> float:
        return float(start.elapsed_time(stop)) / 1000


def timer_for(device: torch.device) -> Timer:
    """The timer that tells the truth about `device`."""
    return CudaTimer(device) if device.type == "cuda" else HostTimer()


class StepClock:
    """Stages may be nested: the outer one stands still while an inner one runs."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._running = ["other"]
        self._marks: deque[tuple[Any, str]] = deque([(timer.mark(), "other")])
        """From this mark on, this stage runs. The oldest are counted and dropped as the device gets there."""
        self._seconds = dict.fromkeys((*STAGES, OUTSIDE), 0.0)

    def enter(self, stage: str) -> None:
        self._running.append(stage)
        self._switch()

    def leave(self) -> None:
        """Back to the stage that was interrupted."""
        self._running.pop()
        self._switch()

    def _switch(self) -> None:
        self._marks.append((self._timer.mark(), self._running[-1]))

    def read(self) -> dict[str, float]:
        """Seconds by stage since the start, as far as the device has come; OUTSIDE is left out."""
        self._switch()
        while len(self._marks) > 1 and self._timer.reached(self._marks[1][0]):
            start, stage = self._marks.popleft()
            self._seconds[stage] += self._timer.seconds(start, self._marks[0][0])
        return {stage: self._seconds[stage] for stage in STAGES}


class ClockedProfiler(Profiler):
    """Listens in on what Lightning announces, and hands everything on to the trainer's own profiler."""

    def __init__(self, own: Profiler, clock: StepClock) -> None:
        super().__init__(own.dirpath, own.filename)
        self.own = own
        self.clock = clock

    def start(self, action_name: str) -> None:
        self.own.start(action_name)
        if stage := STAGE_OF.get(action_name.rpartition(".")[2]):
            self.clock.enter(stage)

    def stop(self, action_name: str) -> None:
        if action_name.rpartition(".")[2] in STAGE_OF:
            self.clock.leave()
        self.own.stop(action_name)

    def summary(self) -> str:
        return self.own.summary()

    def describe(self) -> None:
        self.own.describe()

    def teardown(self, stage: str | None) -> None:
        self.own.teardown(stage)


def listen(trainer: Trainer) -> StepClock:
    """Start a clock that runs with `trainer`; `stop_listening` gives the trainer its profiler back."""
    clock = StepClock(timer_for(trainer.strategy.root_device))
    own: Profiler = trainer.profiler  # type: ignore[attr-defined]  # set by setup, not __init__
    trainer.profiler = ClockedProfiler(own, clock)  # type: ignore[attr-defined]
    return clock


def stop_listening(trainer: Trainer) -> None:
    listening = trainer.profiler  # type: ignore[attr-defined]
    if isinstance(listening, ClockedProfiler):
        trainer.profiler = listening.own  # type: ignore[attr-defined]
