"""Every moment belongs to one stage. The clock in a run: tests/callbacks/test_throughput.py."""

import pytest
import torch
from lightning.pytorch.profilers import SimpleProfiler

from dflash_lightning.training.watch.step_clock import (
    OUTSIDE,
    STAGES,
    ClockedProfiler,
    HostTimer,
    StepClock,
    timer_for,
)


class HandTimer:
    """Seconds that a test sets; a device that runs `behind` has not reached the newest marks."""

    def __init__(self):
        self.now = 0.0
        self.behind = 0.0

    def mark(self):
        return self.now

    def reached(self, mark):
        return mark <= self.now - self.behind

    def seconds(self, start, stop):
        return stop - start


def nothing_but(**seconds):
    return {**dict.fromkeys(STAGES, 0.0), **seconds}


def test_an_inner_stage_interrupts_the_outer_one():
    timer = HandTimer()
    clock = StepClock(timer)
    timer.now = 1.0  # 1 s of other
    clock.enter("optimizer")
    timer.now = 3.0  # 2 s of optimizer
    clock.enter("drafter")
    timer.now = 8.0  # 5 s of drafter
    clock.leave()
    timer.now = 9.0  # 1 s of optimizer
    clock.leave()
    timer.now = 9.5
    assert clock.read() == nothing_but(other=1.5, optimizer=3.0, drafter=5.0)


def test_time_outside_of_training_is_not_counted():
    timer = HandTimer()
    clock = StepClock(timer)
    clock.enter(OUTSIDE)
    clock.enter("target")  # the target also runs for validation: that is told by who calls it, not here
    timer.now = 2.0
    clock.leave()
    timer.now = 7.0
    clock.leave()
    assert clock.read() == nothing_but(target=2.0)


def test_a_device_that_lags_behind_is_counted_later():
    timer = HandTimer()
    clock = StepClock(timer)
    clock.enter("data")
    timer.now = 2.0
    clock.leave()
    timer.now, timer.behind = 3.0, 2.5
    assert clock.read() == nothing_but()
    timer.now = 4.6
    assert clock.read() == nothing_but(data=2.0)
    timer.behind = 0.0
    assert clock.read() == pytest.approx(nothing_but(data=2.0, other=2.6))


def test_actions_are_told_by_the_last_part_of_their_name_and_handed_on():
    own, timer = SimpleProfiler(), HandTimer()
    clock = StepClock(timer)
    profiler = ClockedProfiler(own, clock)
    with profiler.profile("[Strategy]DDPStrategy.backward"):
        timer.now = 1.0
    with profiler.profile("[Callback]Anything.on_train_batch_end"):
        timer.now = 3.0
    with profiler.profile("[_TrainingEpochLoop].train_dataloader_next"):
        timer.now = 3.5
    assert clock.read() == nothing_but(drafter=1.0, other=2.0, data=0.5)
    assert set(own.recorded_durations) == {
        "[Strategy]DDPStrategy.backward",
        "[Callback]Anything.on_train_batch_end",
        "[_TrainingEpochLoop].train_dataloader_next",
    }
    assert "DDPStrategy.backward" in profiler.summary()


def test_an_action_that_fails_is_left():
    timer = HandTimer()
    clock = StepClock(timer)
    profiler = ClockedProfiler(SimpleProfiler(), clock)

    def save():
        with profiler.profile("save_checkpoint"):
            timer.now = 1.0
            raise OSError("disk full")

    with pytest.raises(OSError, match="full"):
        save()
    timer.now = 3.0
    assert clock.read() == nothing_but(storage=1.0, other=2.0)


def test_a_cpu_has_the_time_of_the_process():
    assert isinstance(timer_for(torch.device("cpu")), HostTimer)


@pytest.mark.gpu
def test_on_a_gpu_its_queue_is_timed_without_waiting_for_it():
    clock = StepClock(timer_for(torch.device("cuda")))
    clock.enter("drafter")
    torch.cuda._sleep(500_000_000)
    clock.leave()
    assert clock.read()["drafter"] == 0.0  # still running
    torch.cuda.synchronize()
    seconds = clock.read()
    assert seconds["drafter"] > 0.05
    assert seconds["drafter"] > 10 * seconds["other"]
