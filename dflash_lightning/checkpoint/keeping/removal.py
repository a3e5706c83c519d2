"""Taking checkpoints away, and what crashes left behind.

in    manifests to remove; names that are known; ages in seconds
out   what could not be removed, and why: never an error that stops the rest
law   the manifest goes before its data, so that no manifest ever stands for missing data; data whose
      manifest is gone is found later by its age
"""

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dflash_lightning.checkpoint.claiming.claim import Claim
from dflash_lightning.checkpoint.layout import DATA, PROBES, below, name_of_data
from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.manifest import Manifest
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.protocol import ObjectStore

log = logging.getLogger(__name__)
ORPHAN_AGE_S = 3600.0
"""Data without a manifest is left alone for so long: it may be on its way to one."""


@dataclass(frozen=True)
class Swept:
    """What a sweep did."""

    deleted: tuple[str, ...]
    """Names of checkpoints of which nothing is left."""
    problems: tuple[str, ...]
    """What could not be deleted, and why: logged, and tried again by the next sweep."""


def sweep(store: ObjectStore, prefix: str, superfluous: Sequence[Manifest]) -> Swept:
    """What a publish found superfluous, and data that a kill or a failed deletion left long ago."""
    store = store.quick()
    failed = remove(store, prefix, superfluous)
    problems = [*failed.values(), *remove_orphans(store, prefix, older_than_s=ORPHAN_AGE_S)]
    for problem in problems:
        log.warning("not deleted, the next save tries again: %s", problem)
    deleted = tuple(known.name for known in superfluous if known.name not in failed)
    return Swept(deleted, tuple(map(str, problems)))


def remove(store: ObjectStore, prefix: str, manifests: Sequence[Manifest]) -> dict[str, StoreError]:
    """Each by itself. Returns the names of those of which something is left, and why."""
    failed: dict[str, StoreError] = {}
    for manifest in manifests:
        keys = [join_key(prefix, file.key) for file in manifest.files]
        for group in ([join_key(prefix, manifest.key)], keys):
            error = _deleted(store, group)
            if error is not None:
                failed[manifest.name] = error
                break  # data of a manifest that is still there must stay
    return failed


def remove_orphans(store: ObjectStore, prefix: str, *, older_than_s: float) -> list[StoreError]:
    """Data without a manifest, once it is older: left by a kill, or by a deletion that failed."""
    latest = time.time() - older_than_s
    try:
        old = [facts.key for facts in store.list(join_key(prefix, DATA)) if facts.modified < latest]
        # Asked for after the data: a checkpoint that was published in between has its name in here.
        names = list_manifests(store, prefix).names if old else frozenset()
    except StoreError as error:
        return [error]
    orphans = [key for key in old if _is_data_without(below(prefix, key), names)]
    failure = _deleted(store, orphans)
    return [] if failure is None else [failure]


def clean_leftovers(
    store: ObjectStore, prefix: str, owner: Claim, *, older_than_s: float, now: float | None = None
) -> list[str]:
    """At start-up: aborts pending uploads, deletes data without a manifest and old probes under the prefix.

    `owner` must still hold the prefix: nothing of another live run is touched. Returns what went, as words
    for a log; what could not go takes space and does no harm, so it is a warning.
    Raises: StoreError, of kind "conflict" when another run has taken over.
    """
    now = time.time() if now is None else now
    owner.renew(now)
    gone = []
    try:
        gone += _abort_uploads(store, prefix, started_before=now - older_than_s)
    except StoreError as error:
        log.warning("uploads that a crash left may still take space: %s", error)
    names = list_manifests(store, prefix).names
    found = [*store.list(join_key(prefix, DATA)), *store.list(join_key(prefix, PROBES))]
    old = [facts.key for facts in found if facts.modified < now - older_than_s]
    orphans = [key for key in old if _is_nobodys(below(prefix, key), names)]
    failure = _deleted(store, orphans)
    if failure is not None:
        log.warning("data that a crash left still takes space: %s", failure)
        return gone
    return gone + [store.uri(key) for key in orphans]


def _abort_uploads(store: ObjectStore, prefix: str, *, started_before: float) -> list[str]:
    aborted = []
    for pending in store.list_uploads(join_key(prefix, DATA)):
        if pending.started < started_before:
            store.abort_upload(pending)
            aborted.append(f"the pending upload of {store.uri(pending.key)}")
    return aborted


def _is_nobodys(key: str, names: Collection[str]) -> bool:
    return key.startswith(PROBES) or _is_data_without(key, names)


def _is_data_without(key: str, names: Collection[str]) -> bool:
    name = name_of_data(key)
    return name is not None and name not in names


def _deleted(store: ObjectStore, keys: Sequence[str]) -> StoreError | None:
    """The first reason why one of them is still there."""
    if not keys:
        return None
    try:
        return next(iter(store.delete(keys).values()), None)
    except StoreError as error:
        return error
