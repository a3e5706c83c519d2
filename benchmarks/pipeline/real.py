"""The real TargetPipeline with sleeping targets and drafters: two cores do for 8 devices, sleep needs none.

law   the limit is computed from the time that targets and drafters really took, so that a sleep that is too
      long on a busy machine is a cost and no loss; all else, the pipeline's own work included, is a loss
"""

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from benchmarks.pipeline.costs import Batch, Costs, draw
from dflash_lightning.target.dispatch import PrefetchPolicy
from dflash_lightning.target.pipeline import TargetPipeline
from dflash_lightning.target.pipeline_queues import BatchCost


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One run."""

    policy: PrefetchPolicy
    costs: Costs = Costs()
    targets: int = 3
    """Target devices of each rank; 0: they share the drafter's, one after the other, without a pipeline."""
    ranks: int = 1
    slow: float = 1.0
    """The first device takes so many times as long as the others."""
    window: int = 4
    """Micro-batches of a rank between two meetings of all ranks."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a run did, without its beginning and end."""

    per_second: float
    """Batches of all ranks, in units of the costs."""
    limit: float
    """min(target rate, drafter rate)."""
    waiting: float
    """Share of training's time spent waiting for a batch."""
    head_of_line: float
    """Share of training's time spent waiting while the states of a later batch were ready."""
    imbalance: float
    """Padded tokens of the fullest queue over those of the mean queue, mean over the batches."""
    spread: int
    """Largest difference between the batches dealt to two devices of a rank, ever."""

    @property
    def efficiency(self) -> float:
        return self.per_second / self.limit


@dataclass
class Course:
    """What one rank saw, batch by batch."""

    ends: list[float] = field(default_factory=list)
    waits: list[tuple[float, bool]] = field(default_factory=list)
    """(seconds, whether another batch was ready)"""
    target: list[float] = field(default_factory=list)
    drafter: list[float] = field(default_factory=list)
    imbalance: list[float] = field(default_factory=list)
    spread: int = 0


def run(setting: Setting, *, batches: int, unit: float, seed: int) -> Found:
    """Train `batches` batches on each rank; a unit of cost lasts `unit` seconds."""
    meet = threading.Barrier(setting.ranks)
    train = _shared if setting.targets == 0 else _ahead
    with ThreadPoolExecutor(setting.ranks) as pool:
        work = [
            pool.submit(train, setting, draw(setting.costs, batches, seed, rank=rank), unit, meet)
            for rank in range(setting.ranks)
        ]
        courses = [future.result() for future in work]
    edge = setting.targets * setting.policy.depth + setting.window
    if batches < 3 * edge:
        raise ValueError(f"{batches} batches are mostly beginning and end here: take at least {3 * edge}")
    return _found(setting, courses, slice(edge, batches - edge), unit)


def _nap(seconds: float, times: list[float], slower: float = 1.0) -> None:
    """`times` has what a device of normal speed would have taken."""
    begun = time.perf_counter()
    time.sleep(seconds * slower)
    times.append((time.perf_counter() - begun) / slower)


def _shared(setting: Setting, batches: Sequence[Batch], unit: float, meet: threading.Barrier) -> Course:
    course = Course()
    for number, batch in enumerate(batches, start=1):
        _nap(batch.target * unit, course.target)
        _train(setting, course, batch, number, unit, meet)
    return course


def _ahead(setting: Setting, batches: Sequence[Batch], unit: float, meet: threading.Barrier) -> Course:
    course = Course()

    def target(slower: float) -> Callable[[Batch], None]:
        return lambda batch: _nap(batch.target * unit, course.target, slower)

    workers = [target(setting.slow if i == 0 else 1.0) for i in range(setting.targets)]
    pipeline = TargetPipeline(workers, cost=lambda b: BatchCost(b.tokens, 0, b.tokens), policy=setting.policy)
    windows = [min(setting.window, len(batches) - i) for i in range(0, len(batches), setting.window)]
    with pipeline.run(batches, windows) as pairs:
        for number in range(1, len(batches) + 1):
            _look(pipeline, course)
            ready = any(device.ready_batches for device in pipeline.counters().devices)
            begun = time.perf_counter()
            batch, _ = next(pairs)
            course.waits.append((time.perf_counter() - begun, ready))
            _train(setting, course, batch, number, unit, meet)
    return course


def _train(
    setting: Setting, course: Course, batch: Batch, number: int, unit: float, meet: threading.Barrier
) -> None:
    _nap(batch.drafter * unit, course.drafter)
    if number % setting.window == 0:
        meet.wait()  # gradients are averaged
    course.ends.append(time.perf_counter())


def _look(pipeline: TargetPipeline, course: Course) -> None:
    devices = pipeline.counters().devices
    tokens = [device.queued_tokens for device in devices]
    if sum(tokens):
        course.imbalance.append(max(tokens) * len(tokens) / sum(tokens))
    dealt = [device.total for device in devices]
    course.spread = max(course.spread, max(dealt) - min(dealt))


def _found(setting: Setting, courses: Sequence[Course], middle: slice, unit: float) -> Found:
    spans = [course.ends[middle][-1] - course.ends[middle][0] for course in courses]
    count = len(courses[0].ends[middle]) - 1
    target = statistics.fmean(t for course in courses for t in course.target) / unit
    drafter = statistics.fmean(t for course in courses for t in course.drafter[middle][1:]) / unit
    waits = [wait for course in courses for wait in course.waits[middle][1:]]
    return Found(
        per_second=sum(count / span for span in spans) * unit,
        limit=limit(setting, target, drafter),
        waiting=sum(seconds for seconds, _ in waits) / sum(spans),
        head_of_line=sum(seconds for seconds, ready in waits if ready) / sum(spans),
        imbalance=statistics.fmean([i for course in courses for i in course.imbalance[middle]] or [1.0]),
        spread=max(course.spread for course in courses),
    )


def limit(setting: Setting, target: float, drafter: float) -> float:
    """Batches per second of all ranks that no pipeline exceeds, from the seconds of a batch."""
    if setting.targets == 0:
        return setting.ranks / (target + drafter)
    devices = setting.targets - 1 + 1 / setting.slow
    return setting.ranks * min(devices / target, 1 / drafter)
