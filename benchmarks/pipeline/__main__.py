"""The target pipeline against synthetic costs: throughput beside its analytic limit, waits, queues, splits.

    OMP_NUM_THREADS=1 python -m benchmarks.pipeline [--measured COSTS.json] [--studies NAME ...] [--json]

The pipeline is the real one; targets and drafters sleep for as long as they would compute. COSTS.json gives
seconds of a batch, {"target": 0.9, "drafter": 0.3}, and how much they vary (costs.py). Prints tables, draws
runs/pipeline/simulation.png. Exits 1 where the studies `depth` or `lock` show that a promise is not kept
(promises.py).
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.pipeline import studies, tables
from benchmarks.pipeline.costs import Costs
from benchmarks.pipeline.picture import draw
from benchmarks.pipeline.promises import broken, plain_share
from benchmarks.pipeline.studies import Effort

PICTURE = Path("runs/pipeline/simulation.png")
STUDIES = ("devices", "depth", "slow", "splits", "queues", "lock")


def main() -> int:
    options = parse()
    costs = Costs.read(options.measured) if options.measured else Costs()
    unit = options.unit / costs.drafter
    effort = Effort(options.batches, unit, options.jobs, options.seed)
    found = measure(costs, effort, options.studies)
    if options.json:
        plain = {n: [[*key, value_of(row)] for key, row in rows.items()] for n, rows in found.items()}
        print(json.dumps({"costs": asdict(costs), **plain}))
    else:
        print("\n".join(line for name, rows in found.items() for line in tables.table(name, rows)))
    if "devices" in found and "depth" in found:
        draw(found, costs, options.picture)
        say(f"picture: {options.picture}")
    plain = partial(plain_share, costs, effort) if "depth" in found else None
    return verdict(broken(plain, found.get("lock", {})))


def verdict(lines: Sequence[str]) -> int:
    """The exit code; says what is broken."""
    for line in lines:
        say(f"not kept: {line}")
    return 1 if lines else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--measured", type=Path, help="costs of a batch, as JSON")
    add("--batches", type=int, default=160, help="of each rank and run")
    add("--unit", type=float, default=0.03, help="seconds that a drafter's batch lasts here")
    add("--jobs", type=int, default=4, help="runs at a time; they mostly sleep")
    add("--seed", type=int, default=0)
    add("--studies", nargs="*", default=STUDIES, choices=STUDIES)
    add("--picture", type=Path, default=PICTURE)
    add("--json", action="store_true", help="print figures as JSON")
    return parser.parse_args()


def measure(costs: Costs, effort: Effort, names: list[str]) -> dict[str, Mapping[Any, Any]]:
    work: dict[str, Callable[[], Mapping[Any, Any]]] = {
        "devices": lambda: studies.by_devices(costs, effort, say),
        "depth": lambda: studies.by_depth(costs, effort, say),
        "slow": lambda: studies.by_depth(costs, effort, say, slow=2.0),
        "splits": lambda: studies.by_split(costs, effort, say),
        "queues": lambda: studies.drifts(costs),
        "lock": studies.lock_shares,
    }
    return {name: work[name]() for name in STUDIES if name in names}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def value_of(row: Any) -> Any:
    return row if isinstance(row, float) else asdict(row)


if __name__ == "__main__":
    sys.exit(main())
