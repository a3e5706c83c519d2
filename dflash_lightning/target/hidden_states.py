"""One forward pass of the frozen target that stops as soon as the last tapped layer has spoken.

in    token ids [b, s] and the list of taps (0-based decoder layers)
out   TargetStates: the tapped layers' outputs side by side [b, s, k*h]; the final norm's output only on
      request
law   tap i equals `output_hidden_states[i + 1]` bit for bit (i < depth - 1), and costs no layer behind the
      last tap
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dflash_lightning.target.layers import DecoderParts


@dataclass(frozen=True)
class TargetStates:
    """What one forward pass of the target leaves behind for the drafter."""

    taps: Float[Tensor, "b s kh"]
    """Outputs of the tapped layers, concatenated along the features in the order of the tap list."""
    final: Float[Tensor, "b s h"] | None
    """Output of the final norm, the head's input; None unless it was asked for."""

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "TargetStates":
        """The same states on another device; no copy where they are there. Lightning calls it, too."""
        final = None if self.final is None else self.final.to(device, non_blocking=non_blocking)
        return TargetStates(taps=self.taps.to(device, non_blocking=non_blocking), final=final)

    def keep_for_this_stream(self) -> None:
        """On CUDA: memory that was taken on another stream is not given away before the current stream is
        done with what it has queued so far. Call it where states arrive from a prefetching thread."""
        for states in (self.taps, self.final):
            if states is not None and states.is_cuda:
                states.record_stream(torch.cuda.current_stream(states.device))


class _LastTapReached(Exception):
    """Leaves the target's forward pass from inside a hook; never seen by callers."""


def tapped_forward(
    parts: DecoderParts, input_ids: Int[Tensor, "b s"], taps: Sequence[int], *, final: bool, **options: Any
) -> TargetStates:
    """Run the decoder body on `input_ids` and collect the tapped layers (spec/dflash.md 1.2).

    With `final` all layers and the final norm run, without it nothing behind the last tap does; the head
    never runs. `options` go to the body's forward (cache, use_cache). Hooks are removed on every way out,
    errors included. One forward at a time per target: two threads that share a model would read each
    other's layers.

    Raises:
        ValueError: a tap is not a layer of the target, or nothing was asked for.
    """
    require_taps(taps, len(parts.layers), final=final)
    collected = _Collected(taps, stop_after=None if final else max(taps))
    with _hooks(parts.layers, taps, collected.receive):
        try:
            output = parts.body(input_ids=input_ids, **options)
        except _LastTapReached:
            return TargetStates(taps=collected.states(), final=None)
    last = output.last_hidden_state
    states = collected.states() if taps else last.new_empty(*last.shape[:2], 0)
    return TargetStates(taps=states, final=last)


def require_taps(taps: Sequence[int], depth: int, *, final: bool = False) -> None:
    """Refuse taps outside 0..depth-1, and an empty list where nothing else is wanted."""
    if not taps and not final:
        raise ValueError("no layer to tap: the list of taps is empty")
    outside = [tap for tap in taps if not 0 <= tap < depth]
    if outside:
        raise ValueError(f"taps {outside} are not layers of the target, which has layers 0 to {depth - 1}")


class _Collected:
    """Writes each tapped output straight into its columns, so that no layer's output outlives the next."""

    def __init__(self, taps: Sequence[int], *, stop_after: int | None) -> None:
        self._taps = taps
        self._stop_after = stop_after
        self._states: Tensor | None = None

    def receive(self, layer: int, output: Tensor) -> None:
        batch, length, width = output.shape
        if self._states is None:
            self._states = output.new_empty(batch, length, width * len(self._taps))
        columns = self._states.view(batch, length, len(self._taps), width)
        for column, tap in enumerate(self._taps):
            if tap == layer:
                columns[:, :, column] = output
        if layer == self._stop_after:
            raise _LastTapReached

    def states(self) -> Tensor:
        assert self._states is not None, "the target's forward pass ran no tapped layer"
        return self._states


@contextmanager
def _hooks(
    layers: nn.ModuleList, taps: Sequence[int], receive: Callable[[int, Tensor], None]
) -> Iterator[None]:
    def hook_of(layer: int) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            receive(layer, output[0] if isinstance(output, tuple) else output)

        return hook

    handles = [layers[tap].register_forward_hook(hook_of(tap)) for tap in sorted(set(taps))]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
