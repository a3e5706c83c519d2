"""An inventory of checkpoints as a table for people, or as plain values for JSON.

in    an inventory; the time now, in seconds since 1970
out   text whose columns line up, at most 100 wide; values without NaN
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dflash_lightning.checkpoint.keeping.inventory import Entry, Inventory
from dflash_lightning.checkpoint.manifest import Manifest
from dflash_lightning.plan_view.columns import columns, plural, size

WIDTH = 100
_HEAD = ("checkpoint", "state", "kind", "pointers", "age", "size")
_SHOWN = "val/"
_AGES = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def as_text(inventory: Inventory, *, now: float) -> str:
    """A line each, newest first, with the run where there are several, and with values of the validation, as
    many as fit; under the table why something is not complete."""
    manifests = [entry.manifest for entry in inventory.entries if entry.manifest is not None]
    metrics = metric_names(manifests)
    runs = list(dict.fromkeys(manifest.run_id for manifest in manifests))
    while max(map(len, lines := _table(inventory, metrics, now, runs=len(runs) > 1))) > WIDTH and metrics:
        metrics = metrics[:-1]
    lines += [f"{e.name} is {e.state}: {e.reason}" for e in inventory.entries if e.state != "complete"]
    lines += [f"upload not finished: {uri}" for uri in inventory.pending]
    total = size(sum(entry.num_bytes for entry in inventory.entries))
    if len(runs) > 1:
        lines.append(f"{len(runs)} runs lie here; last and best are those of the newest, {runs[0]}")
    complete = f"{plural(len(inventory.entries), 'checkpoint')}, {len(inventory.complete)} complete"
    return "\n".join([*lines, f"{complete}, {total}"])


def as_values(inventory: Inventory) -> dict[str, Any]:
    """Bytes; seconds since 1970; a value that is not finite is null."""
    return {
        "checkpoints": [_values(entry) for entry in inventory.entries],
        "pending_uploads": list(inventory.pending),
    }


def age(seconds: float) -> str:
    """12 s, 3 min, 5 h, 2 d: the largest unit that fills one."""
    seconds = max(0.0, seconds)
    scale, unit = next(((s, u) for s, u in _AGES if seconds >= s), _AGES[-1])
    return f"{int(seconds / scale)} {unit}"


def _table(inventory: Inventory, metrics: Sequence[str], now: float, *, runs: bool) -> list[str]:
    rows = [(*_HEAD, *metrics), *(_row(entry, metrics, now) for entry in inventory.entries)]
    if not runs:
        return columns(rows, left=4)
    of = ["run", *(entry.manifest.run_id if entry.manifest else "" for entry in inventory.entries)]
    return columns([(row[0], run, *row[1:]) for run, row in zip(of, rows, strict=True)], left=5)


def _row(entry: Entry, metrics: Sequence[str], now: float) -> tuple[str, ...]:
    manifest = entry.manifest
    if manifest is None:
        blank = ("", "", "", size(entry.num_bytes) if entry.num_bytes else "", *("" for _ in metrics))
        return (entry.name, entry.state, *blank)
    return (
        entry.name,
        entry.state,
        manifest.kind,
        " ".join(entry.pointers),
        age(now - manifest.created),
        size(entry.num_bytes),
        *(f"{manifest.metrics[name]:.4g}" if name in manifest.metrics else "" for name in metrics),
    )


def metric_names(manifests: Sequence[Manifest]) -> list[str]:
    """Of validations: the monitored one first, then in the order in which they first appear."""
    monitored = [m.monitor for m in manifests if m.monitor is not None and m.monitor in m.metrics]
    others = (name for m in manifests for name in m.metrics if name.startswith(_SHOWN))
    return list(dict.fromkeys([*monitored, *others]))


def _values(entry: Entry) -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": entry.name,
        "state": entry.state,
        "reason": entry.reason,
        "pointers": list(entry.pointers),
        "bytes": entry.num_bytes,
    }
    manifest = entry.manifest
    if manifest is not None:
        values |= {
            "step": manifest.step,
            "epoch": manifest.epoch,
            "kind": manifest.kind,
            "created": manifest.created,
            "run_id": manifest.run_id,
            "monitor": manifest.monitor,
            "metrics": _finite(manifest.metrics),
            "facts": dict(manifest.facts),
            "files": [{"key": f.key, "bytes": f.size, "crc32": f.crc32} for f in manifest.files],
        }
    return values


def _finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}
