"""CUDA streams of a prefetching thread, so that neither its copies nor its kernels stand in training's queue.

law   what comes back is finished, so whoever receives it needs no event; only its memory belongs to another
      stream (TargetStates.keep_for_this_stream). Without CUDA nothing happens here
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeVar

import torch

T = TypeVar("T")


class SideStreams:
    """One stream on each CUDA device of `devices`; the last one is the current device inside."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        once = dict.fromkeys(reversed(devices))
        self._streams = [_stream(device) for device in reversed(once) if device.type == "cuda"]

    def finish(self, compute: Callable[[], T]) -> T:
        """What `compute` returns, once the devices have got there."""
        with ExitStack() as entered:
            if self._streams:  # a thread begins at device 0, and leaving a stream would open a context there
                entered.enter_context(torch.cuda.device(self._streams[-1].device))
            for stream in self._streams:
                entered.enter_context(torch.cuda.stream(stream))
            result = compute()
        for stream in self._streams:
            stream.synchronize()
        return result


def _stream(device: torch.device) -> torch.cuda.Stream:
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))  # weights may still be on their way there
    return stream
