"""What lies under a prefix: its manifests, newest first, and those that cannot be read, with the reason.

law   one manifest that is broken hides no other
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dflash_lightning.checkpoint.layout import MANIFESTS, below, name_of_manifest
from dflash_lightning.checkpoint.manifest import Manifest
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.protocol import ObjectStore
from dflash_lightning.checkpoint.verify import ATTEMPTS

_THREADS = 8
"""Manifests are small: what takes time is waiting for each answer."""


@dataclass(frozen=True)
class Broken:
    """A manifest that cannot be used."""

    key: str
    """Below the prefix."""
    reason: str


@dataclass(frozen=True)
class Listing:
    manifests: tuple[Manifest, ...]
    """Newest first."""
    broken: tuple[Broken, ...]

    @property
    def names(self) -> frozenset[str]:
        """Of all manifests, the broken ones too: their data is not nobody's."""
        keys = [manifest.key for manifest in self.manifests] + [broken.key for broken in self.broken]
        return frozenset(name for key in keys if (name := name_of_manifest(key)) is not None)


def list_manifests(store: ObjectStore, prefix: str) -> Listing:
    """Raises: StoreError when the store cannot be asked."""
    keys = [below(prefix, facts.key) for facts in store.list(join_key(prefix, MANIFESTS))]
    keys = [key for key in keys if name_of_manifest(key) is not None]
    if len(keys) < _THREADS:
        read = [_read(store, prefix, key) for key in keys]
    else:
        with ThreadPoolExecutor(_THREADS, "manifests") as threads:
            read = list(threads.map(lambda key: _read(store, prefix, key), keys))
    manifests = [found for found in read if isinstance(found, Manifest)]
    return Listing(
        tuple(sorted(manifests, key=age_order, reverse=True)),
        tuple(found for found in read if isinstance(found, Broken)),
    )


def age_order(manifest: Manifest) -> tuple[int, int, str]:
    """Older before newer. Two of one serial come from one session, which stored the older one late, or
    from two runs that ignored each other."""
    return manifest.serial, manifest.step, manifest.name


def _read(store: ObjectStore, prefix: str, key: str) -> Manifest | Broken | None:
    reason = ""
    for _ in range(ATTEMPTS):
        try:
            manifest = Manifest.from_json(store.read(join_key(prefix, key)))
        except StoreError as error:
            if error.kind == "missing":  # deleted since it was listed
                return None
            if error.kind != "corrupt":
                raise
            reason = str(error)
        except ValueError as error:
            reason = str(error)
        else:
            return manifest if manifest.key == key else Broken(key, f"it is that of {manifest.name}")
    return Broken(key, reason)
