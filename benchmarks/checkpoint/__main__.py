"""What a checkpoint costs training: ways to save 1.2 GB against a memcpy of the same bytes, in one run.

    OMP_NUM_THREADS=1 python -m benchmarks.checkpoint [--bytes 1.2e9] [--rounds 3] [--ways NAME ...] [--json]
    OMP_NUM_THREADS=1 python -m benchmarks.checkpoint --ways --ranks      only the gaps of the other rank

The state is a drafter's with its Adam moments; the store is SeaweedFS on this machine.
Training is a loop of real steps of a small drafter. Prints a table, or with --json all figures.
"""

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.checkpoint.measure import measure
from benchmarks.checkpoint.ranks import measure_ranks
from benchmarks.checkpoint.state import Memcpy, State
from benchmarks.checkpoint.steps import Loop
from benchmarks.checkpoint.ways import WAYS, open_way
from dflash_lightning.checkpoint.writing.priority import group_nice
from dflash_lightning.plan_view.columns import columns
from tests.s3.server import Weed

Rows = Mapping[str, Mapping[str, float]]


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    found: dict[str, object] = {"bytes": options.bytes, "threads": options.threads}
    if options.ways:
        found["ways"] = compare(options)
    if options.ranks:
        found["ranks"] = measure_ranks(options.bytes, options.rounds, tell)
    if options.json:
        print(json.dumps(_finite(found), indent=2, allow_nan=False))
        return
    for name in ("ways", "ranks"):
        if name in found:
            print("\n".join(as_table(found[name])))  # type: ignore[arg-type]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--bytes", type=lambda text: int(float(text)), default=1_200_000_000, help="size of the state")
    add("--rounds", type=int, default=3, help="saves of each way, behind one that warms up")
    add("--idle", type=float, default=3.0, help="seconds of steps before each save")
    add("--threads", type=int, default=torch.get_num_threads(), help="of torch: copies and steps")
    add("--ways", nargs="*", default=WAYS, choices=WAYS, help="which to compare; empty: none")
    add("--ranks", action=argparse.BooleanOptionalAction, default=True, help="two ranks, a slow store")
    add("--json", action="store_true", help="print figures as JSON")
    return parser.parse_args()


def compare(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    state, loop, results = State(options.bytes), Loop(), {}
    memcpy = Memcpy(state)
    tell(f"state of {state.num_bytes / 1e9:.2f} GB in {len(state.tensors)} tensors")
    with tempfile.TemporaryDirectory() as folder:
        place = Weed(Path(folder) / "weed")
        os.environ |= place.environment
        place.start()
        try:
            _follow(place)
            for name in options.ways:
                opened = partial(open_way, name, place, Path(folder), state.dump(0))
                say = partial(_tell_of, name)
                found = measure(opened, state, memcpy, loop, options.rounds, options.idle, say)
                results[name] = found.figures(state.num_bytes)
        finally:
            place.kill()
    return results


def as_table(rows: Rows) -> list[str]:
    names = next(iter(rows.values())).keys()
    cells = [[name, *(f"{row[key]:.3g}" for key in names)] for name, row in rows.items()]
    return columns([["", *names], *cells], left=1)


def _finite(value: Any) -> Any:
    """JSON knows no NaN: no step ran while a way saved that blocks."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _tell_of(name: str, text: str) -> None:
    tell(f"{name}, {text}")


def _follow(place: Weed) -> None:
    """A server has a session of its own, which Linux weighs as a group: it gets the priority of this run."""
    ours = Path("/proc/self/autogroup")
    with suppress(OSError):  # systems without such groups weigh no sessions
        Path(f"/proc/{place.pid}/autogroup").write_text(str(group_nice(ours.read_text())))


if __name__ == "__main__":
    main()
