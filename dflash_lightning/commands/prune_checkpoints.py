"""The deleting half of `python cli.py checkpoints`: says what would go, and with --yes deletes it.

law   the newest complete checkpoint stays, what is not complete stays, and a live run is left alone
law   last.json and best.json name what stays, and do so before anything is deleted
"""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jsonargparse import Namespace

if TYPE_CHECKING:  # imported when the work starts: `--help` must not wait for it
    from dflash_lightning.checkpoint.job import Retention
    from dflash_lightning.checkpoint.keeping.inventory import Inventory
    from dflash_lightning.checkpoint.manifest import Manifest
    from dflash_lightning.checkpoint.stores import ObjectStore

_SHOWN = 8
"""Names of metrics in a message."""
_STALE_S = 300.0
"""As a run without a sign of life for so long counts as gone."""


def prune(store: "ObjectStore", prefix: str, options: Namespace) -> int:
    """Exit code: 1 if something is still there that should be gone.

    Raises: ValueError for a metric that decides nothing; StoreError, before anything is deleted.
    """
    from dflash_lightning.checkpoint.keeping.inventory import take_inventory
    from dflash_lightning.checkpoint.keeping.retention import to_delete
    from dflash_lightning.plan_view.columns import size

    inventory = take_inventory(store, prefix)
    complete = inventory.complete
    rules = _retention(options, complete)
    going = to_delete(complete, rules, None, protected=_best_of_newest_run(complete, rules))
    really = "yes" in options and "dry_run" not in options
    for manifest in going:
        print(f"{'deleting' if really else 'would delete'} {manifest.name}, {size(manifest.size)}")
    freed = size(sum(manifest.size for manifest in going))
    if not really:
        hint = "" if "dry_run" in options or not going else "; --yes deletes them"
        print(f"{len(going)} of {len(complete)} complete checkpoints would go, {freed}{hint}")
        return 0
    failed = _deleted(store, prefix, inventory, going)
    for name, error in failed.items():
        print(f"{name} is still there: {error}", file=sys.stderr)
    print(f"{len(going) - len(failed)} of {len(complete)} complete checkpoints deleted")
    return 1 if failed else 0


def _deleted(
    store: "ObjectStore", prefix: str, inventory: "Inventory", going: "Sequence[Manifest]"
) -> dict[str, Exception]:
    """Under a claim of its own: what a live run counts on must not go."""
    from dflash_lightning.checkpoint.claiming.claim import claim
    from dflash_lightning.checkpoint.keeping.pointers import named, write_pointers
    from dflash_lightning.checkpoint.keeping.removal import remove

    staying = [e for e in inventory.entries if e.manifest is not None and e.manifest not in going]
    broken = [entry.name for entry in staying if entry.state != "complete"]
    targets = named([entry.manifest for entry in staying if entry.manifest is not None], broken=broken)
    held = claim(store, prefix, "checkpoints prune", now=time.time(), stale_after_s=_STALE_S)
    try:
        for problem in write_pointers(store, prefix, targets, drop=True):
            raise problem
        return dict(remove(store, prefix, going))
    finally:
        held.release()


def _best_of_newest_run(complete: "Sequence[Manifest]", rules: "Retention") -> list[str]:
    """Keys of what `best` means, where another run's are better: as many as stay of all runs together."""
    from dflash_lightning.checkpoint.keeping.pointers import newest_run
    from dflash_lightning.checkpoint.keeping.retention import best_first

    best = best_first(newest_run(complete), rules.monitor, rules.mode)
    return [m.key for m in (best if rules.keep_best == -1 else best[: rules.keep_best])]


def _retention(options: Namespace, complete: "Sequence[Manifest]") -> "Retention":
    from dflash_lightning.checkpoint.job import Retention

    monitor: str | None = options.get("monitor")
    if monitor is not None and complete:
        _require_values(monitor, complete)
    rule = next((m for m in complete if m.monitor is not None and monitor in (None, m.monitor)), None)
    if monitor is not None and rule is None and complete and "mode" not in options:
        raise ValueError(
            f"no checkpoint was saved by {monitor}, so nothing says which values are better: "
            "add --mode min or --mode max"
        )
    return Retention(
        keep_last=options.keep_last,
        keep_best=options.keep_best,
        monitor=monitor or (rule.monitor if rule is not None else None),
        mode=options.get("mode") or (rule.mode if rule is not None else "min"),
    )


def _require_values(monitor: str, complete: "Sequence[Manifest]") -> None:
    """Else none would be best, and all of them would go."""
    from dflash_lightning.commands.checkpoint_table import metric_names

    if not any(monitor in manifest.metrics for manifest in complete):
        every = (name for manifest in complete for name in manifest.metrics)
        names = list(dict.fromkeys([*metric_names(complete), *every]))
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        held = f"they hold {', '.join(names[:_SHOWN])}{more}" if names else "they hold no metric"
        raise ValueError(f"no checkpoint holds {monitor}; {held}")
    if all(manifest.value(monitor) is None for manifest in complete):
        raise ValueError(
            f"no checkpoint has a finite value of {monitor}, so none is best; give another metric"
        )
