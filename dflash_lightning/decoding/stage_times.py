"""Where the time of decoding goes: the target's prefill, drafting, the target's verification.

in    blocks of code, each of one stage
out   seconds per stage, and how often it ran
law   work queued on a GPU is finished before the clock is read, at the start of a stage and at its end
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import nan
from typing import Literal

import torch

Stage = Literal["prefill", "draft", "verify"]
STAGES: tuple[Stage, ...] = ("prefill", "draft", "verify")


@dataclass(frozen=True)
class StageTime:
    """One stage of all decodings together."""

    share: float
    """Of the time of all stages, 0 to 1."""
    seconds: float
    calls: int

    @property
    def ms_per_call(self) -> float:
        """Milliseconds; NaN where the stage never ran."""
        return 1000 * self.seconds / self.calls if self.calls else nan


class StageTimes:
    """Adds up over as many decodings as it is given to."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()

    @contextmanager
    def of(self, stage: Stage, device: torch.device) -> Iterator[None]:
        _finish(device)
        started = time.perf_counter()
        yield
        _finish(device)
        self.seconds[stage] += time.perf_counter() - started
        self.calls[stage] += 1

    def shares(self) -> dict[str, float]:
        """Share of each stage in the sum of them; nothing where nothing was timed."""
        total = sum(self.seconds.values())
        return {stage: self.seconds[stage] / total for stage in STAGES} if total else {}

    def spent(self) -> dict[str, StageTime]:
        """What each stage took; nothing where nothing was timed."""
        return {
            stage: StageTime(share, self.seconds[stage], self.calls[stage])
            for stage, share in self.shares().items()
        }


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
