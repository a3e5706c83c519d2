"""What lies under a prefix, for people: every checkpoint with its state, and what is none.

in    a store and a prefix; deep reads every byte
out   one Entry each, newest first, then what has no usable manifest
law   one that is broken hides no other, and nothing is changed
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from dflash_lightning.checkpoint.layout import BEST, DATA, LAST, below, name_of_data, name_of_manifest
from dflash_lightning.checkpoint.listing import Listing, list_manifests
from dflash_lightning.checkpoint.manifest import Manifest
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.protocol import ObjectStore
from dflash_lightning.checkpoint.verify import check

State = Literal["complete", "incomplete", "corrupt"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    name: str
    state: State
    """incomplete: data without manifest, or manifest without data; corrupt: it differs from its checksums."""
    reason: str = ""
    """Why it is not complete."""
    manifest: Manifest | None = None
    pointers: tuple[str, ...] = ()
    """last and best, where they point here."""
    num_bytes: int = 0
    """As the manifest says; of data without one, what lies there."""


@dataclass(frozen=True)
class Inventory:
    entries: tuple[Entry, ...]
    pending: tuple[str, ...] = ()
    """Addresses of uploads that are under way, or were when their process ended."""

    @property
    def complete(self) -> list[Manifest]:
        """Newest first."""
        return [e.manifest for e in self.entries if e.manifest is not None and e.state == "complete"]


def take_inventory(store: ObjectStore, prefix: str, *, deep: bool = False) -> Inventory:
    """Raises: StoreError when the store cannot be asked."""
    listing = list_manifests(store, prefix)
    pointers = {which: _pointed(store, prefix, key) for which, key in (("last", LAST), ("best", BEST))}
    entries = [
        _judged(store, prefix, m, tuple(which for which, key in pointers.items() if key == m.key), deep)
        for m in listing.manifests
    ]
    for broken in listing.broken:
        name = name_of_manifest(broken.key) or broken.key
        entries.append(Entry(name=name, state="corrupt", reason=f"its manifest: {broken.reason}"))
    entries += _without_manifest(store, prefix, listing)
    pending = []
    with suppress(StoreError):  # a right that readers may lack
        pending = [store.uri(found.key) for found in store.list_uploads(join_key(prefix, DATA))]
    return Inventory(tuple(entries), tuple(pending))


def _judged(
    store: ObjectStore, prefix: str, manifest: Manifest, pointers: tuple[str, ...], deep: bool
) -> Entry:
    state: State = "complete"
    reason = ""
    try:
        check(store, prefix, manifest, deep=deep)
    except StoreError as error:
        if error.kind not in ("missing", "corrupt"):
            raise
        state = "incomplete" if error.kind == "missing" else "corrupt"
        reason = str(error)
    return Entry(
        name=manifest.name,
        state=state,
        reason=reason,
        manifest=manifest,
        pointers=pointers,
        num_bytes=manifest.size,
    )


def _without_manifest(store: ObjectStore, prefix: str, listing: Listing) -> list[Entry]:
    sizes: dict[str, int] = {}
    known = listing.names
    for facts in store.list(join_key(prefix, DATA)):
        name = name_of_data(below(prefix, facts.key))
        if name is not None and name not in known:
            sizes[name] = sizes.get(name, 0) + facts.size
    reason = "data without a manifest: being written, or left by a kill"
    return [
        Entry(name=name, state="incomplete", reason=reason, num_bytes=size) for name, size in sizes.items()
    ]


def _pointed(store: ObjectStore, prefix: str, key: str) -> str | None:
    """The manifest that a pointer names. It is a hint: what cannot be read names none."""
    with suppress(StoreError, ValueError, TypeError, KeyError):
        return str(json.loads(store.read(join_key(prefix, key)))["manifest"])
    return None
