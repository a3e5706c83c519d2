"""The deleting half of `python cli.py checkpoints`: says what would go, and with --yes deletes it.

law   the newest complete checkpoint stays, what is not complete stays, and a live run is left alone
"""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jsonargparse import Namespace

if TYPE_CHECKING:  # imported when the work starts: `--help` must not wait for it
    from dflash_lightning.checkpoint.job import Retention
    from dflash_lightning.checkpoint.manifest import Manifest
    from dflash_lightning.checkpoint.stores import ObjectStore

_STALE_S = 300.0
"""As a run without a sign of life for so long counts as gone."""


def prune(store: "ObjectStore", prefix: str, options: Namespace) -> int:
    """Exit code: 1 if something is still there that should be gone."""
    from dflash_lightning.checkpoint.inventory import take_inventory
    from dflash_lightning.checkpoint.retention import to_delete
    from dflash_lightning.plan_view.columns import size

    complete = take_inventory(store, prefix).complete
    going = to_delete(complete, _retention(options, complete), (), None)
    really = "yes" in options and "dry_run" not in options
    for manifest in going:
        print(f"{'deleting' if really else 'would delete'} {manifest.name}, {size(manifest.size)}")
    freed = size(sum(manifest.size for manifest in going))
    if not really:
        hint = "" if "dry_run" in options or not going else "; --yes deletes them"
        print(f"{len(going)} of {len(complete)} complete checkpoints would go, {freed}{hint}")
        return 0
    failed = _deleted(store, prefix, going)
    for name, error in failed.items():
        print(f"{name} is still there: {error}", file=sys.stderr)
    print(f"{len(going) - len(failed)} of {len(complete)} complete checkpoints deleted")
    return 1 if failed else 0


def _deleted(store: "ObjectStore", prefix: str, going: "Sequence[Manifest]") -> dict[str, Exception]:
    """Under a claim of its own: what a live run counts on must not go."""
    from dflash_lightning.checkpoint.claim import claim
    from dflash_lightning.checkpoint.removal import remove

    held = claim(store, prefix, "checkpoints prune", now=time.time(), stale_after_s=_STALE_S)
    try:
        return dict(remove(store, prefix, going))
    finally:
        held.release()


def _retention(options: Namespace, complete: "Sequence[Manifest]") -> "Retention":
    from dflash_lightning.checkpoint.job import Retention

    rule = next((manifest for manifest in complete if manifest.monitor is not None), None)
    return Retention(
        keep_last=options.keep_last,
        keep_best=options.keep_best,
        monitor=options.get("monitor") or (rule.monitor if rule is not None else None),
        mode=options.get("mode") or (rule.mode if rule is not None else "min"),
    )
