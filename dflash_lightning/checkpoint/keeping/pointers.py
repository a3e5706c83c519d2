"""What `last` and `best` mean under a prefix: one rule for addresses, for lists, for last.json and best.json.

in    the manifests under a prefix, newest first
out   candidates, the first choice first; the two files that name the first
law   both words mean the newest run; `best` goes by the metric that its newest was saved with
law   a pointer names what stays: it is written before anything that it named is deleted
"""

import json
from collections.abc import Collection, Sequence

from dflash_lightning.checkpoint.keeping.retention import best_first
from dflash_lightning.checkpoint.layout import BEST, LAST
from dflash_lightning.checkpoint.manifest import Manifest
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.protocol import ObjectStore

FILES = {"last": LAST, "best": BEST}


def newest_run(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Those of the run that saved last."""
    return [m for m in manifests if m.run_id == manifests[0].run_id]


def best_of(run: Sequence[Manifest]) -> list[Manifest]:
    """The best first, of one run; none where no value of its metric is finite."""
    rule = next((m for m in run if m.monitor is not None), None)
    return [] if rule is None else best_first(run, rule.monitor, rule.mode)


def named(manifests: Sequence[Manifest], *, broken: Collection[str] = ()) -> dict[str, Manifest]:
    """What `last` and `best` lead to; `broken` holds names of checkpoints that are passed over. A word that
    leads nowhere is absent."""
    candidates = {"last": manifests, "best": best_of(newest_run(manifests))}
    found = {which: [m for m in chosen if m.name not in broken] for which, chosen in candidates.items()}
    return {which: chosen[0] for which, chosen in found.items() if chosen}


def none_is_best(manifests: Sequence[Manifest], place: str) -> str:
    """Why, and the way out: the best of the run before. `place` is the address that ends with best."""
    older = _best_before(manifests)
    way_out = "resume from last or from a step"
    if older is not None:
        of_step = next(m for m in manifests if m.step == older.step)
        step = f"step={older.step}" if of_step is older else older.name  # else it would mean the newer one
        way_out = (
            f"the best of run {older.run_id}, which was there before, is {place.removesuffix('best')}{step}"
        )
    return (
        f"{place}: no checkpoint of the newest run there has a finite value of a monitored metric: "
        f"none is best; {way_out}"
    )


def _best_before(manifests: Sequence[Manifest]) -> Manifest | None:
    """Of the newest older run that has one."""
    for run_id in dict.fromkeys(m.run_id for m in manifests):
        best = best_of([m for m in manifests if m.run_id == run_id])
        if best and run_id != manifests[0].run_id:
            return best[0]
    return None


def write_pointers(
    store: ObjectStore, prefix: str, targets: dict[str, Manifest], *, drop: bool
) -> list[StoreError]:
    """Both files. `drop`: a file of a word that leads nowhere is deleted. Returns what failed."""
    problems: list[StoreError] = []
    for which, key in FILES.items():
        full, target = join_key(prefix, key), targets.get(which)
        try:
            if target is not None:
                store.put(full, _text(target))
            elif drop:
                problems += store.delete([full]).values()
        except StoreError as error:
            problems.append(error)
    return problems


def _text(target: Manifest) -> bytes:
    keys = [file.key for file in target.files]
    return json.dumps({"manifest": target.key, "data": keys, "step": target.step}).encode()
