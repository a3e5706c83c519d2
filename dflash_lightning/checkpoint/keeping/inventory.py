"""What lies under a prefix, for people: every checkpoint with its state, and what is none.

in    a store and a prefix; deep reads every byte
out   one Entry each, newest first, then what has no usable manifest
law   one that is broken hides no other, and nothing is changed
law   `last` and `best` are marked where these addresses lead; the pointers are not read
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from dflash_lightning.checkpoint.keeping.pointers import named
from dflash_lightning.checkpoint.layout import DATA, below, name_of_data, name_of_manifest
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
    """last and best, where these addresses lead here."""
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
    entries = [_judged(store, prefix, manifest, deep) for manifest in listing.manifests]
    broken = [entry.name for entry in entries if entry.state != "complete"]
    targets = named(listing.manifests, broken=broken)
    entries = [
        replace(entry, pointers=tuple(which for which, m in targets.items() if m is entry.manifest))
        for entry in entries
    ]
    for unread in listing.broken:
        name = name_of_manifest(unread.key) or unread.key
        entries.append(Entry(name=name, state="corrupt", reason=f"its manifest: {unread.reason}"))
    entries += _without_manifest(store, prefix, listing)
    pending = []
    with suppress(StoreError):  # a right that readers may lack
        pending = [store.uri(found.key) for found in store.list_uploads(join_key(prefix, DATA))]
    return Inventory(tuple(entries), tuple(pending))


def _judged(store: ObjectStore, prefix: str, manifest: Manifest, deep: bool) -> Entry:
    state: State = "complete"
    reason = ""
    try:
        check(store, prefix, manifest, deep=deep)
    except StoreError as error:
        if error.kind not in ("missing", "corrupt"):
            raise
        state = "incomplete" if error.kind == "missing" else "corrupt"
        reason = str(error)
    return Entry(name=manifest.name, state=state, reason=reason, manifest=manifest, num_bytes=manifest.size)


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
