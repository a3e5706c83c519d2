"""What the pipeline of one rank did from one log to the next: counters of two moments -> numbers of the time
between.

in    PipelineCounters, looked at behind every optimizer step
out   Interval, and the same as one row of float64 that ranks exchange
law   a row says everything: Interval.of_row(interval.row(), ...) is the interval. Depths and tokens are means
      over the steps, the rest sums over the time; what happened between `pause` and `go_on` counts nowhere
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, fields

from dflash_lightning.target.pipeline_counters import PipelineCounters


@dataclass(frozen=True, kw_only=True)
class DeviceInterval:
    """One target device."""

    depth: float
    """Batches dispatched and not yet handed to training, mean over the steps."""
    queued_tokens: float
    """Their padded tokens, mean over the steps."""
    pending_tokens: float
    """Of these, padded tokens that still have to go through the target, mean over the steps."""
    busy: float
    """Seconds in the target."""
    idle: float
    """Seconds without a batch."""
    dispatched: float
    """Batches."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """One rank."""

    seconds: float
    """Of training, validation left out."""
    wait: float
    """Seconds in which training waited for a batch."""
    feed_wait: float
    """Seconds in which the feed waited for room in a queue or in the memory budget."""
    source: float
    """Seconds in which the feed waited for token batches."""
    delivered: float
    """Batches handed to training."""
    bytes_in_flight: float
    """Of hidden states, mean over the steps."""
    peak_bytes: float
    """Their maximum since the pipeline was made."""
    devices: tuple[DeviceInterval, ...]
    buckets: tuple[float, ...]
    """Batches dispatched, by bucket."""

    def row(self) -> list[float]:
        """All of it, in a fixed order. As long on every rank, where ranks have equally many devices."""
        devices = [value for device in self.devices for value in astuple(device)]
        return [*(getattr(self, name) for name in _OWN), *devices, *self.buckets]

    @classmethod
    def of_row(cls, row: Sequence[float], devices: int) -> "Interval":
        """The interval of a rank with so many target devices."""
        own, rest, width = row[: len(_OWN)], row[len(_OWN) :], len(fields(DeviceInterval))
        parts = [rest[i * width : (i + 1) * width] for i in range(devices)]
        names = [f.name for f in fields(DeviceInterval)]
        return cls(
            **dict(zip(_OWN, own, strict=True)),
            devices=tuple(DeviceInterval(**dict(zip(names, part, strict=True))) for part in parts),
            buckets=tuple(rest[devices * width :]),
        )


_OWN = tuple(f.name for f in fields(Interval) if f.name not in ("devices", "buckets"))

Sums = defaultdict[str, float]


def _sums() -> Sums:
    return defaultdict(float)


@dataclass
class IntervalSums:
    """Adds up counters, step by step, and gives the interval when it is over."""

    num_buckets: int
    _before: PipelineCounters | None = None
    _own: Sums = field(default_factory=_sums)
    _of_device: list[Sums] = field(default_factory=list)
    _buckets: Counter[int] = field(default_factory=Counter)
    _steps: int = 0
    _peak: float = 0.0

    def go_on(self, now: PipelineCounters) -> None:
        """Count from this moment on."""
        self._before = now
        self._of_device = self._of_device or [_sums() for _ in now.devices]

    def pause(self, now: PipelineCounters, seconds: float) -> None:
        """Count no longer; `seconds` of training have passed since the last call."""
        if self._before is None:
            return
        before, self._before = self._before, None
        self._own["seconds"] += seconds
        self._own["wait"] += now.consumer_wait_seconds - before.consumer_wait_seconds
        self._own["feed_wait"] += now.feed_wait_seconds - before.feed_wait_seconds
        self._own["source"] += now.source_seconds - before.source_seconds
        self._own["delivered"] += now.delivered - before.delivered
        for sums, old, new in zip(self._of_device, before.devices, now.devices, strict=True):
            sums["busy"] += new.busy_seconds - old.busy_seconds
            sums["idle"] += new.idle_seconds - old.idle_seconds
            sums["dispatched"] += new.total - old.total
        self._buckets.update(now.dispatched)
        self._buckets.subtract(before.dispatched)

    def step(self, now: PipelineCounters, seconds: float) -> None:
        """An optimizer step ended; `seconds` have passed since the last call."""
        self.pause(now, seconds)
        self.go_on(now)
        self._steps += 1
        self._own["bytes_in_flight"] += now.bytes_in_flight
        self._peak = float(now.peak_bytes)
        for sums, device in zip(self._of_device, now.devices, strict=True):
            sums["depth"] += device.queued_batches
            sums["queued_tokens"] += device.queued_tokens
            sums["pending_tokens"] += device.pending_tokens

    def take(self) -> Interval:
        """The interval that ends with the step just counted; the next one begins."""
        own, steps = self._own, self._steps
        interval = Interval(
            **{name: own[name] for name in ("seconds", "wait", "feed_wait", "source", "delivered")},
            bytes_in_flight=own["bytes_in_flight"] / steps,
            peak_bytes=self._peak,
            devices=tuple(_device(sums, steps) for sums in self._of_device),
            buckets=tuple(float(self._buckets[bucket]) for bucket in range(self.num_buckets)),
        )
        self._own, self._buckets, self._steps = _sums(), Counter(), 0
        self._of_device = [_sums() for _ in self._of_device]
        return interval


def _device(sums: Sums, steps: int) -> DeviceInterval:
    means = {name: sums[name] / steps for name in ("depth", "queued_tokens", "pending_tokens")}
    return DeviceInterval(**means, **{name: sums[name] for name in ("busy", "idle", "dispatched")})
