"""What a pipeline has done and holds: plain numbers, for callbacks and the simulation.

law   a snapshot is taken under the pipeline's lock, so its numbers belong to one moment
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dflash_lightning.target.pipeline_queues import Queues


@dataclass(frozen=True, kw_only=True)
class DeviceCounters:
    """One target device. Sums are since the pipeline was made; depths are of this moment."""

    name: str
    queued_batches: int
    """Dispatched, not yet handed to training: waiting, in the target, or ready."""
    queued_tokens: int
    """Their padded tokens."""
    ready_batches: int
    """Those whose hidden states wait for training."""
    pending_tokens: int
    """Padded tokens that still have to go through the target."""
    dispatched: Mapping[int, int]
    """Batches dealt to this device, by bucket."""
    busy_seconds: float
    """In the target (or wherever hidden states come from), copies included."""
    idle_seconds: float
    """Waiting for a batch."""

    @property
    def total(self) -> int:
        """Batches dealt to this device."""
        return sum(self.dispatched.values())


@dataclass(frozen=True, kw_only=True)
class PipelineCounters:
    """A pipeline at one moment."""

    devices: tuple[DeviceCounters, ...]
    delivered: int
    """Batches handed to training."""
    source_seconds: float
    """The feed thread waited for token batches (padding, anchors)."""
    feed_wait_seconds: float
    """The feed thread waited for room: full queues, or the memory budget."""
    consumer_wait_seconds: float
    """Training waited for a batch."""
    bytes_in_flight: int
    """Hidden states dispatched and not yet done with: those being trained on count."""
    peak_bytes: int
    """Largest bytes_in_flight so far."""

    @property
    def dispatched(self) -> Mapping[int, int]:
        """Batches dealt to all devices, by bucket."""
        return sum((Counter(device.dispatched) for device in self.devices), Counter[int]())


@dataclass
class Tally:
    """The running sums behind the counters: changed by the pipeline's threads, under its lock."""

    devices: int
    dispatched: list[Counter[int]] = field(init=False)
    busy: list[float] = field(init=False)
    idle: list[float] = field(init=False)
    delivered: int = 0
    source: float = 0.0
    feed_wait: float = 0.0
    consumer_wait: float = 0.0
    peak_bytes: int = 0

    def __post_init__(self) -> None:
        self.dispatched = [Counter() for _ in range(self.devices)]
        self.busy, self.idle = [0.0] * self.devices, [0.0] * self.devices


def snapshot(names: Sequence[str], queues: Queues, tally: Tally) -> PipelineCounters:
    """The numbers of this moment."""
    return PipelineCounters(
        devices=tuple(_device(i, name, queues, tally) for i, name in enumerate(names)),
        delivered=tally.delivered,
        source_seconds=tally.source,
        feed_wait_seconds=tally.feed_wait,
        consumer_wait_seconds=tally.consumer_wait,
        bytes_in_flight=queues.bytes,
        peak_bytes=tally.peak_bytes,
    )


def _device(index: int, name: str, queues: Queues, tally: Tally) -> DeviceCounters:
    queue = queues.entries[index]
    return DeviceCounters(
        name=name,
        queued_batches=len(queue),
        queued_tokens=sum(entry.cost.tokens for entry in queue),
        ready_batches=sum(entry.ready for entry in queue),
        pending_tokens=queues.pending_tokens[index],
        dispatched=dict(tally.dispatched[index]),
        busy_seconds=tally.busy[index],
        idle_seconds=tally.idle[index],
    )
