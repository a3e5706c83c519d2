"""What the simulation must show, or it exits 1: the pipeline's throughput, and what its shared counter costs.

in    figures: shares of the analytic limit, shares of a step
out   a line for each promise that is not kept
law   the plain case is measured again before it counts as missed: a busy machine may spoil one run
"""

from collections.abc import Callable, Mapping

from benchmarks.pipeline.costs import Costs
from benchmarks.pipeline.real import Setting, run
from benchmarks.pipeline.studies import WAYS, Effort, policy

LIMIT = 0.95
"""Least share of the analytic limit, in the plain case: costs that do not vary, depth 4."""
LOCK = 0.001
"""Share of a step that dealing its batches must stay below."""
TRIES = 2


def plain_share(costs: Costs, effort: Effort) -> float:
    """Share of the limit that one drafter with three just balancing targets reaches, without jitter."""
    plain = Costs(target=3 * costs.drafter, drafter=costs.drafter, sizes=0.0, jitter=0.0, drafter_jitter=0.0)
    setting = Setting(policy=policy(WAYS[0], 4), costs=plain, targets=3)
    return run(setting, batches=max(effort.batches, 48), unit=effort.unit, seed=effort.seed).efficiency


def broken(measure: Callable[[], float] | None, locks: Mapping[int, float]) -> list[str]:
    """A line for each promise that is not kept.

    Args:
        measure: Share of the limit in the plain case, measured at each call; None: not asked for.
        locks: Share of a step that dealing costs, by target devices.
    """
    lines = [
        f"dealing to {devices} devices costs {share:.4%} of a step; it must stay below {LOCK:.1%}: look at "
        "what Dispatcher does under its lock"
        for devices, share in locks.items()
        if share >= LOCK
    ]
    if measure is not None and (best := best_of(measure)) < LIMIT:
        lines.append(
            f"without jitter and at depth 4 the pipeline reaches {best:.3f} of the limit, in the better of "
            f"{TRIES} runs; it must be at least {LIMIT}: run it on an idle machine, or look at what the "
            "pipeline waits for"
        )
    return lines


def best_of(measure: Callable[[], float]) -> float:
    """The first share that is enough, else the best of TRIES."""
    best = 0.0
    for _ in range(TRIES):
        best = max(best, measure())
        if best >= LIMIT:
            break
    return best
