"""Which checkpoint does an address mean? The newest, the best or that of a step, if it verifies.

in    s3://bucket/prefix, .../last, .../best, .../step=8, .../step=8-1a2b3c4d, a folder in the same way
out   its manifest, or an error that says what lies there
law   manifests decide; pointers are never read. What is broken is skipped, and said
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from dflash_lightning.checkpoint.keeping.pointers import best_of, newest_run, none_is_best
from dflash_lightning.checkpoint.layout import MANIFESTS, below, name_of_manifest
from dflash_lightning.checkpoint.listing import Listing, list_manifests
from dflash_lightning.checkpoint.manifest import Manifest
from dflash_lightning.checkpoint.redact import redact_text
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.protocol import ObjectStore
from dflash_lightning.checkpoint.verify import check

log = logging.getLogger(__name__)
OnSkip = Callable[[str, str], None]
"""Gets the address of what was skipped, and why."""
_WHICH = re.compile(r"last|newest|best|step=\d+(-[0-9a-f]{8})?")
_SHOWN = 5
_LOOKED_AT = 1000
"""Keys, of what else lies there: one page of a bucket."""


class NothingFound(StoreError):
    """There is no checkpoint, not even a broken one: who asked may decide to start fresh."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="missing")

    def __reduce__(self) -> tuple[Any, ...]:
        return NothingFound, (str(self),)


@dataclass(frozen=True)
class Source:
    """Where to resume from."""

    uri: str
    """Of the prefix, or of the file."""
    which: str | None
    """last, newest (the same), best, step=8 or step=8-1a2b3c4d; None: a file by itself, stored by others."""


def parse_source(uri: str) -> Source:
    """Split an address of `--ckpt_path`. Asks no server; without a last word it means `last`."""
    remote = "://" in uri
    if not remote and (uri.endswith(".ckpt") or Path(uri).is_file()):
        return Source(uri, None)
    if not remote and (Path(uri) / MANIFESTS).is_dir():  # a folder that happens to be called last
        return Source(uri, "last")
    base, _, word = uri.rstrip("/").rpartition("/")
    if word.endswith(".ckpt"):
        raise ValueError(
            f"{redact_text(uri)} is one object, and only checkpoints with a manifest are fetched: give the "
            "prefix, as in s3://bucket/prefix/step=8, or download it and give the path of the file"
        )
    if _WHICH.fullmatch(word) and not base.endswith(":/"):
        return Source(base or ("/" if uri.startswith("/") else "."), word)
    if re.match(r"step=", word):
        raise ValueError(
            f"{redact_text(uri)} ends with {word!r}, which names no step: write step=8 or step=8-1a2b3c4d"
        )
    return Source(uri.rstrip("/") or uri, "last")


def asks_for_newest_of(place: str, uri: str) -> bool:
    """True where the address `uri` means the newest checkpoint of the store at `place`."""
    source = parse_source(uri)
    return source.which in ("last", "newest") and is_same_place(source.uri, place)


def is_same_place(one: str, other: str) -> bool:
    """True for two spellings of one prefix or folder. Asks no server."""
    return _normal(one) == _normal(other)


def _normal(place: str) -> str:
    path = place.removeprefix("file://")
    return place.rstrip("/") if "://" in path else str(Path(path).resolve())


def resolve(
    store: ObjectStore, prefix: str, which: str = "last", *, on_skip: OnSkip | None = None
) -> Manifest:
    """The first checkpoint in question whose data is there with the right size.

    Raises: NothingFound; StoreError of kind "corrupt" when there are checkpoints, and all are broken.
    """
    return next(candidates(store, prefix, which, on_skip=on_skip))


def candidates(
    store: ObjectStore,
    prefix: str,
    which: str,
    *,
    on_skip: OnSkip | None = None,
    reasons: list[str] | None = None,
) -> Iterator[Manifest]:
    """In the order in which they should be tried; at the end the error that says why none would do. Who finds
    out later that one will not do adds to `reasons`."""
    reasons = [] if reasons is None else reasons
    place = f"{store.uri(join_key(prefix, which))}"

    def skip(key: str, reason: str) -> None:
        uri = store.uri(join_key(prefix, key))
        reasons.append(f"{uri}: {reason}")
        (on_skip or warn)(uri, reason)

    listing = list_manifests(store, prefix)
    for broken in listing.broken:
        if _concerns(broken.key, which):
            skip(broken.key, broken.reason)
    chosen = choose(listing.manifests, which, place)
    if not chosen and not reasons:
        raise _nothing(store, prefix, place, listing)
    for manifest in chosen:
        try:
            check(store, prefix, manifest)
        except StoreError as error:
            if error.kind not in ("missing", "corrupt"):
                raise
            skip(manifest.key, str(error))
        else:
            yield manifest
    raise StoreError(
        f"no checkpoint at {place} can be used: {'; '.join(reasons)}",
        kind="corrupt",
    )


def choose(manifests: Sequence[Manifest], which: str, place: str) -> list[Manifest]:
    """Newest first in, candidates out; `place` ends with `which`. Pure.

    Raises: ValueError for a word that means nothing, and for best where none is.
    """
    if which in ("last", "newest"):
        return list(manifests)
    if which == "best":
        best = best_of(newest_run(manifests))
        if manifests and not best:
            raise ValueError(none_is_best(manifests, place))
        return best
    if _WHICH.fullmatch(which) is None:
        raise ValueError(f"{which!r} must be last, best, newest, step=8 or step=8-1a2b3c4d")
    if "-" in which:
        return [m for m in manifests if m.name == which]
    return [m for m in manifests if m.step == int(which.removeprefix("step="))]


def warn(uri: str, reason: str) -> None:
    """What is done with what is skipped, unless the caller does better."""
    log.warning("skipping %s: %s", uri, reason)


def _concerns(key: str, which: str) -> bool:
    """Whether a manifest that cannot be read might have been the one."""
    name = name_of_manifest(key) or ""
    return not which.startswith("step=") or name == which or name.startswith(f"{which}-")


def _nothing(store: ObjectStore, prefix: str, place: str, listing: Listing) -> StoreError:
    if listing.manifests:
        steps = ", ".join(str(step) for step in sorted({m.step for m in listing.manifests}))
        return StoreError(f"there is no checkpoint {place}; there are steps {steps}", kind="missing")
    everything = (facts.key for facts in store.list(f"{prefix}/" if prefix else ""))
    found = [key for key in islice(everything, _LOOKED_AT) if not key.rpartition("/")[2].startswith(".")]
    lies = f"only {', '.join(found[:_SHOWN])}{', and more' if len(found) > _SHOWN else ''}"
    nested = next((folder for key in found if (folder := _store_around(below(prefix, key)))), None)
    way_out = f"give {store.uri(join_key(prefix, nested))}" if nested else "check the address"
    if not nested and len(found) == 1 and found[0].endswith(".ckpt"):  # of `checkpoints fetch`
        way_out = f"to load that file, give its path: {store.uri(found[0])}"
    message = f"there is no checkpoint {place}: {lies if found else 'nothing'} lies there; {way_out}"
    return StoreError(message, kind="missing") if listing.broken else NothingFound(message)


def _store_around(key: str) -> str | None:
    """`store` of store/manifests/step=...json: checkpoints lie below the folder that was asked for."""
    folder, found, name = key.rpartition(f"/{MANIFESTS}")
    return folder if found and name_of_manifest(MANIFESTS + name) is not None else None
