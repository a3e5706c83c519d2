"""A loop of real optimizer steps of a small drafter, and what its step times say.

out   Times: seconds of each step
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.checkpoint.state import drafter_of
from dflash_lightning.drafter import DFlashDrafter

WIDTH, CONTEXT, ANCHORS = 128, 192, 8


class Times:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def milliseconds(self, quantile: float) -> float:
        """NaN where no step was made."""
        return 1e3 * float(np.quantile(self.seconds, quantile)) if self.seconds else float("nan")

    def __len__(self) -> int:
        return len(self.seconds)


class Loop:
    """Forward, backward and AdamW of a drafter of two layers, on one row of noise."""

    def __init__(self) -> None:
        config = drafter_of(WIDTH, layers=2, taps=2)
        self._drafter = DFlashDrafter(config, seed=1)
        self._optimizer = torch.optim.AdamW(self._drafter.parameters(), lr=1e-4)
        anchors = torch.linspace(16, CONTEXT - 1, ANCHORS).long()[None]
        self._masks = self._drafter.build_masks(anchors, torch.ones_like(anchors, dtype=torch.bool), CONTEXT)
        blocks = (anchors[0, :, None] + torch.arange(config.block_size)).flatten()
        self._positions = torch.cat((torch.arange(CONTEXT), blocks))[None]
        self._taps = torch.randn(1, CONTEXT, 2 * WIDTH)
        self._slots = torch.randn(1, len(blocks), WIDTH)
        for _ in range(5):
            self.step()

    def step(self) -> None:
        hidden = self._drafter(self._slots, self._taps, self._positions, self._masks)
        hidden.square().mean().backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def run(self, times: Times, until: Callable[[], bool], *, at_least: int = 0) -> None:
        """Steps until `until()`, which is asked behind each, as callbacks are, and counts as a part of it."""
        done, steps = False, 0
        while not done or steps < at_least:
            begin = time.perf_counter()
            self.step()
            done = until()
            times.seconds.append(time.perf_counter() - begin)
            steps += 1

    def idle(self, times: Times, seconds: float) -> None:
        end = time.perf_counter() + seconds
        self.run(times, lambda: time.perf_counter() > end, at_least=3)
