"""One way to save, measured in a training loop: what the call blocks, what the upload does to steps, memory.

law   every way stands beside a memcpy and idle steps of its own minutes: ratios of one stretch of time
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from benchmarks.checkpoint.memory import peak_bytes, reset_peak, resident_bytes
from benchmarks.checkpoint.state import Memcpy, State
from benchmarks.checkpoint.steps import Loop, Times
from benchmarks.checkpoint.ways import Way

COPIES, LOOK_S = 5, 1.0
Tell = Callable[[str], None]


@dataclass
class Measured:
    blocked: list[float] = field(default_factory=list)
    copies: list[float] = field(default_factory=list)
    stored_after: list[float] = field(default_factory=list)
    idle: Times = field(default_factory=Times)
    during: Times = field(default_factory=Times)
    held_bytes: int = 0
    """What stays while the way is open: arenas."""
    peak_bytes: int = 0
    """The most above the state itself, arenas and helpers included."""

    def figures(self, num_bytes: int) -> dict[str, float]:
        """Ratios, and the seconds and milliseconds behind them. NaN: no step ran during a save."""
        blocked, copy = median(self.blocked), median(self.copies)
        return {
            "blocked/memcpy": blocked / copy,
            "blocked s": blocked,
            "memcpy s": copy,
            "stored s": median(self.stored_after),
            "idle p50 ms": self.idle.milliseconds(0.5),
            "p50": self.during.milliseconds(0.5) / self.idle.milliseconds(0.5),
            "idle p99 ms": self.idle.milliseconds(0.99),
            "p99": self.during.milliseconds(0.99) / self.idle.milliseconds(0.99),
            "longest ms": self.during.milliseconds(1.0),
            "steps": len(self.during),
            "kept": self.held_bytes / num_bytes,
            "peak": self.peak_bytes / num_bytes,
        }


def measure(
    open_way: Callable[[], Way],
    state: State,
    memcpy: Memcpy,
    loop: Loop,
    rounds: int,
    idle_s: float,
    tell: Tell,
) -> Measured:
    found = Measured()
    before = resident_bytes()
    way = open_way()
    try:
        found.held_bytes = resident_bytes() - before
        _once(way, 1, state, memcpy, loop, idle_s, Measured())  # the first one pays for imports
        for number in range(rounds):
            reset_peak()
            helpers = _once(way, number + 2, state, memcpy, loop, idle_s, found)
            found.peak_bytes = max(found.peak_bytes, peak_bytes() - before + helpers)
            tell(f"round {number + 1} of {rounds}: blocked {found.blocked[-1]:.3f} s")
    finally:
        way.close()
    return found


def _once(
    way: Way, number: int, state: State, memcpy: Memcpy, loop: Loop, idle_s: float, found: Measured
) -> int:
    """Returns the most that helper processes held."""
    loop.idle(found.idle, idle_s)
    for _ in range(COPIES):
        found.copies.append(_timed(memcpy))
        loop.step()  # as before a save: what the caches hold is the step's
    begin = time.perf_counter()
    found.blocked.append(_timed(lambda: way.save(number, state.dump)))
    helpers = 0
    while not way.settled():
        loop.run(found.during, partial(_settled_or_late, way, time.perf_counter() + LOOK_S))
        helpers = max(helpers, way.helper_bytes())
    found.stored_after.append(time.perf_counter() - begin)
    return helpers


def _settled_or_late(way: Way, deadline: float) -> bool:
    return way.settled() or time.perf_counter() > deadline


def _timed(act: Callable[[], None]) -> float:
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin
