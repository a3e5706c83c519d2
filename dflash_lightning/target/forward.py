"""One target of a rank, for whoever needs states: the training thread, or a prefetching one.

in    token ids, on any device
out   TargetStates on the drafter's device (`home`)
law   one forward at a time per target, whoever asks; the same numbers from any thread

A result that moves from the target's device to `home` exists on both for the time of its copy.
"""

import threading
from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.model import Target
from dflash_lightning.target.side_streams import SideStreams


class TargetForward:
    """A target, the taps that are wanted of it, and where its states are needed."""

    def __init__(self, target: Target, taps: Sequence[int], *, final: bool, home: torch.device) -> None:
        self.target = target
        self._taps = taps
        self._final = final
        self._home = home
        self._lock = threading.Lock()
        self._streams = SideStreams([home, target.device])

    def __call__(self, input_ids: Int[Tensor, "b s"]) -> TargetStates:
        """States in the caller's own thread and stream."""
        with self._lock:
            ids = input_ids.to(self.target.device, non_blocking=True)
            states = self.target.tapped_states(ids, self._taps, final=self._final)
            return states.to(self._home, non_blocking=True)

    def ahead(self, input_ids: Int[Tensor, "b s"]) -> TargetStates:
        """The same for a prefetching thread: on streams of its own, and finished."""
        return self._streams.finish(lambda: self(input_ids))
