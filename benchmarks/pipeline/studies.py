"""What is compared: each study gives rows of (label, cells), and keeps what the picture shows."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from benchmarks.pipeline.costs import Costs
from benchmarks.pipeline.lock import lock_share
from benchmarks.pipeline.queues import Dealing, Feeding, simulate
from benchmarks.pipeline.real import Found, Setting, run
from dflash_lightning.target.dispatch import Delivery, Dispatch, PrefetchPolicy

WAYS: tuple[tuple[Dispatch, Delivery], ...] = (
    ("round_robin", "in_order"),
    ("round_robin", "ready_first"),
    ("least_loaded", "in_order"),
    ("least_loaded", "ready_first"),
)
SPLITS = {"8 shared": (8, 0), "4 + 4": (4, 1), "6 + 2": (2, 3), "7 + 1": (1, 7)}
"""(drafters, target devices of each) of 8 devices."""


@dataclass(frozen=True)
class Effort:
    """How much is run."""

    batches: int = 160
    unit: float = 0.03
    """Seconds that a unit of cost lasts."""
    jobs: int = 4
    """Runs at a time: they mostly sleep."""
    seed: int = 0


Runs = Mapping[tuple[str, ...], Found]


def _all(settings: Mapping[tuple[str, ...], Setting], effort: Effort, say: Callable[[str], None]) -> Runs:
    def one(setting: Setting) -> Found:
        edge = setting.targets * setting.policy.depth + setting.window
        batches = max(effort.batches, 3 * edge)
        found = run(setting, batches=batches, unit=effort.unit, seed=effort.seed)
        way = f"{setting.policy.dispatch}, {setting.policy.delivery}, depth {setting.policy.depth}"
        say(f"{setting.ranks} x ({setting.targets} + 1), {way}: {found.efficiency:.3f} of the limit")
        return found

    with ThreadPoolExecutor(effort.jobs) as pool:
        return dict(zip(settings, pool.map(one, settings.values()), strict=True))


def policy(way: tuple[Dispatch, Delivery], depth: int) -> PrefetchPolicy:
    return PrefetchPolicy(dispatch=way[0], delivery=way[1], depth=depth, memory_bytes=None)


def by_devices(costs: Costs, effort: Effort, say: Callable[[str], None], *, depth: int = 4) -> Runs:
    """One drafter with 1 to 8 target devices."""
    settings = {
        (*way, str(n)): Setting(policy=policy(way, depth), costs=costs, targets=n)
        for way in WAYS
        for n in range(1, 9)
    }
    return _all(settings, effort, say)


def by_depth(costs: Costs, effort: Effort, say: Callable[[str], None], *, slow: float = 1.0) -> Runs:
    """Three target devices for one drafter, just balanced if costs did not vary, at several depths."""
    balanced = replace(costs, target=3 * costs.drafter)
    settings = {
        (*way, str(depth)): Setting(policy=policy(way, depth), costs=balanced, targets=3, slow=slow)
        for way in WAYS
        for depth in (1, 2, 4, 8)
    }
    return _all(settings, effort, say)


def by_split(costs: Costs, effort: Effort, say: Callable[[str], None], *, depth: int = 4) -> Runs:
    """Eight devices, divided in several ways, for targets that take 1, 3 and 7 times as long as drafters."""
    settings = {
        (name, str(ratio)): Setting(
            policy=policy(("least_loaded", "ready_first"), depth),
            costs=replace(costs, target=ratio * costs.drafter),
            targets=targets,
            ranks=drafters,
        )
        for ratio in (1, 3, 7)
        for name, (drafters, targets) in SPLITS.items()
    }
    return _all(settings, effort, say)


@dataclass(frozen=True)
class Drifted:
    """Six deep queues and four feeders, several seeds together."""

    spread: int
    apart: float
    """Deepest minus shallowest queue, mean."""
    worst: int
    example: Sequence[int]
    """Depths when the first queue is full, or at the end."""


def drifts(costs: Costs, *, batches: int = 4000, seeds: int = 5) -> dict[tuple[Dealing, int], Drifted]:
    """Counters of their own, the shared one, and the least loaded queue, at two depths of queues."""
    ways: list[tuple[Dealing, int]] = [
        ("own counters", 50), ("round_robin", 50), ("least_loaded", 50),
        ("own counters", 2), ("round_robin", 2), ("least_loaded", 2),
    ]  # fmt: skip
    return {(dealing, depth): _drifted(dealing, depth, costs, batches, seeds) for dealing, depth in ways}


def _drifted(dealing: Dealing, depth: int, costs: Costs, batches: int, seeds: int) -> Drifted:
    feeding = Feeding(dealing=dealing, depth=depth, costs=costs)
    found = [simulate(feeding, batches=batches, seed=seed) for seed in range(seeds)]
    depths = found[0].depths
    return Drifted(
        spread=max(drift.spread for drift in found),
        apart=statistics.fmean(n for drift in found for n in drift.apart[batches // 4 :]),
        worst=max(max(drift.apart) for drift in found),
        example=next((now for now in depths if max(now) == depth), depths[-1]),
    )


def lock_shares(devices: Sequence[int] = (1, 3, 8)) -> dict[int, float]:
    """Share of a step of 100 ms that dealing 16 batches costs, 8 threads at the lock at once."""
    return {n: lock_share(threads=8, devices=n, batches=16) for n in devices}
