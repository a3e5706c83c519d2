"""The studies as tables."""

from collections.abc import Mapping
from typing import Any

from benchmarks.pipeline.real import Found
from benchmarks.pipeline.studies import Drifted
from dflash_lightning.plan_view.columns import columns

HEADINGS = {
    "devices": "one drafter, 1 to 8 target devices, depth 4",
    "depth": "three target devices that just balance one drafter, by depth",
    "slow": "the same, one of the three devices twice as slow",
    "splits": "8 devices (least_loaded, ready_first, depth 4): target as long as the drafter, 3, 7 times",
    "queues": "six queues, four feeders (simulated)",
    "lock": "share of a step of 100 ms that dealing its 16 batches costs, 8 threads at the lock",
}
LABELS = {"devices": 3, "depth": 3, "slow": 3, "splits": 2}


def table(name: str, rows: Mapping[Any, Any]) -> list[str]:
    """A heading, aligned lines, an empty line."""
    lines = {"queues": _drifts, "lock": _lock}.get(name, _runs)(rows)
    return [HEADINGS[name], *columns(lines, left=LABELS.get(name, 2)), ""]


def _runs(rows: Mapping[tuple[str, ...], Found]) -> list[list[str]]:
    first = next(iter(rows))
    labels = ["dispatch", "delivery", ""] if len(first) == 3 else ["split", "target/drafter"]
    heads = ["batches/s", "limit", "of limit", "waits %", "behind a ready one %", "imbalance", "spread"]
    return [[*labels, *heads], *([*key, *_cells(found)] for key, found in rows.items())]


def _cells(found: Found) -> list[str]:
    return [
        f"{found.per_second:.3f}",
        f"{found.limit:.3f}",
        f"{found.efficiency:.3f}",
        f"{100 * found.waiting:.1f}",
        f"{100 * found.head_of_line:.1f}",
        f"{found.imbalance:.2f}",
        str(found.spread),
    ]


def _drifts(rows: Mapping[tuple[str, int], Drifted]) -> list[list[str]]:
    heads = ["dealing", "", "depth", "dealt apart", "queues apart: mean", "worst", "depths"]
    return [
        heads,
        *(
            [
                way,
                "",
                str(depth),
                str(d.spread),
                f"{d.apart:.1f}",
                str(d.worst),
                " ".join(map(str, d.example)),
            ]
            for (way, depth), d in rows.items()
        ),
    ]


def _lock(rows: Mapping[int, float]) -> list[list[str]]:
    return [["devices", "", "share"], *([str(n), "", f"{100 * share:.4f} %"] for n, share in rows.items())]
