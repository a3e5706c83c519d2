"""Which side holds training up (feed, target or drafter), and how many target devices a drafter needs.

in    what all ranks' pipelines did since the last log
out   a verdict, and words for people
law   the ratio that balances is seconds of a target device per batch over seconds of a drafter per batch:
      with n target devices a rank makes min(1 / feed, n / target, 1 / drafter) batches per second
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dflash_lightning.target.balance.interval import Interval
from dflash_lightning.target.balance.states_from import StatesFrom

Side = Literal["feed", "target", "drafter", "jitter"]

WAITS = 0.05
"""Share of the time that training waits from which on a side other than the drafter holds it up."""
SURPLUS = 1.5
"""Target devices, as a multiple of what balances, from which on some are better used as drafters."""

IDLE = 0.5
"""Target devices that would balance a drafter, below which the two are better run on the same devices."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Seconds per batch; means over ranks and time."""

    feed: float
    """Of a rank's feed: reading, padding, drawing anchors."""
    target: float
    """Of one target device; of reading, where hidden states come from disk."""
    drafter: float
    """Of a rank's training without its waits for batches; with its waits for other ranks."""
    waiting: float
    """Share of the time that training waits for batches."""
    devices: int
    """Target devices of a rank; 1 where it reads hidden states from disk."""

    @property
    def balance(self) -> float:
        """Target devices that keep one drafter busy."""
        return self.target / self.drafter if self.drafter else float("inf")

    @property
    def side(self) -> Side:
        """Who is too slow. "jitter": all are fast enough on average, but costs vary more than the queues even
        out."""
        if self.waiting < WAITS:
            return "drafter"
        slower, side = max((self.feed, "feed"), (self.target / self.devices, "target"))
        if slower <= self.drafter:
            return "jitter"
        return "feed" if side == "feed" else "target"


def rates(ranks: Sequence[Interval]) -> Rates | None:
    """What all ranks together say; None where nothing was trained, or computed: the end of an epoch."""
    batches, seconds = sum(r.delivered for r in ranks), sum(r.seconds for r in ranks)
    wait = sum(r.wait for r in ranks)
    busy = sum(device.busy for r in ranks for device in r.devices)
    computed = sum(device.dispatched for r in ranks for device in r.devices)
    if not (batches and seconds and busy and computed):
        return None
    return Rates(
        feed=sum(r.source for r in ranks) / computed,
        target=busy / computed,
        drafter=max(seconds - wait, 0.0) / batches,
        waiting=wait / seconds,
        devices=len(ranks[0].devices),
    )


def advice(found: Rates, states_from: StatesFrom) -> str | None:
    """What to tell the user; None where the devices are well used."""
    if found.side == "drafter":
        if states_from != "own devices":
            return None
        if found.balance < IDLE:
            return _share(found)
        if found.devices < 2 or found.devices < SURPLUS * found.balance:
            return None
        return (
            f"the drafter is the bottleneck, and target devices stand idle: training waits "
            f"{_pct(found.waiting)} of its time; {_costs(found)}"
        )
    begin = f"training waits {_pct(found.waiting)} of its time for batches; the bottleneck is "
    if found.side == "feed":
        return (
            f"{begin}the feed: a token batch takes {_ms(found.feed)}, a drafter's step on it "
            f"{_ms(found.drafter)}; raise data.num_workers, or put the store on a faster disk"
        )
    if found.side == "jitter":
        return (
            f"{begin}that costs vary: feed ({_ms(found.feed)} a batch), {_producer(found, states_from)} and "
            f"drafter ({_ms(found.drafter)}) are fast enough on average; let PrefetchBalance go deeper "
            f"(max_depth, memory_gib){', or deliver ready_first' if found.devices > 1 else ''}"
        )
    if states_from == "disk":
        return (
            f"{begin}reading hidden states: a batch takes {_ms(found.target)} to read, and "
            f"{_ms(found.drafter)} of the drafter; put them (model.hidden_states) on a faster disk, or let "
            "the target compute them (model.hidden_states null)"
        )
    if states_from == "drafter's device":
        return (
            f"{begin}the target, which shares the drafter's device: a batch takes {_ms(found.target)} there, "
            f"and {_ms(found.drafter)} of the drafter; more of these devices, or devices of its own "
            "(model.target_devices), make training faster"
        )
    return f"{begin}the target: {_costs(found)}"


def _share(found: Rates) -> str:
    idle, devices = 1 - found.balance / found.devices, 1 + found.devices
    one = found.devices == 1
    theirs = "target device stands" if one else f"{found.devices} target devices stand"
    own = "a target device" if one else f"{found.devices} target devices"
    return (
        f"the drafter is the bottleneck, and its {theirs} idle {_pct(idle)} of the time: a batch takes "
        f"{_ms(found.target)} of a target device and {_ms(found.drafter)} of a drafter; where both fit one "
        f"device, let them share it (model.target_devices 0): {devices} drafters with their targets then "
        f"train up to {devices / (1 + found.balance):.1f} times as many batches as one drafter with {own} of "
        "its own"
    )


def split(devices: int, balance: float) -> tuple[int, int]:
    """(target, drafter) of so many devices with the most batches per second: each drafter has equally many
    targets."""
    choices = [(drafters * n, drafters) for drafters in range(1, devices) for n in range(1, devices)]
    fitting = [(t, d) for t, d in choices if t + d <= devices]
    return max(fitting, key=lambda pair: (min(pair[0] / balance, pair[1]), sum(pair), pair[0]))


def _costs(found: Rates) -> str:
    targets, drafters = split(8, found.balance)
    return (
        f"a batch takes {_ms(found.target)} of a target device and {_ms(found.drafter)} of a drafter, so "
        f"{found.balance:.1f} target devices per drafter would balance them, and there are {found.devices} "
        f"(model.target_devices; of 8 devices: {targets} + {drafters})"
    )


def _producer(found: Rates, states_from: StatesFrom) -> str:
    if states_from == "disk":
        return f"reading hidden states ({_ms(found.target)})"
    devices = "1 device" if found.devices == 1 else f"each of {found.devices} devices"
    return f"target ({_ms(found.target)} on {devices})"


def _pct(share: float) -> str:
    return f"{100 * share:.1f} %"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.2f} s"
