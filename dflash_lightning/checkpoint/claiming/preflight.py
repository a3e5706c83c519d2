"""Can checkpoints be kept here? Tried with a probe before training, since hours later is too late to learn.

in    a store and the prefix of the run
out   nothing, or a StoreError that tells which right, bucket, key, clock or endpoint is wrong
law   every right that a run needs is used once, within seconds; the probe is deleted even after a failure,
      and what could not be deleted is named
"""

import logging
from contextlib import suppress
from uuid import uuid4

from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.protocol import ObjectStore

log = logging.getLogger(__name__)
_CONTENT = b"a probe of the rights to keep checkpoints here; may be deleted\n"
_PLACE = "probe"


def preflight(store: ObjectStore, prefix: str) -> None:
    """List, put, get, begin and abort an upload, delete. Few attempts and short timeouts.

    Raises: StoreError of the kind of the first failure.
    """
    store = store.quick()
    key = join_key(prefix, f"{_PLACE}/{uuid4().hex[:12]}")
    left = ""
    try:
        next(iter(store.list(key)), None)
        try:
            _try_writing(store, key)
        except StoreError:
            left = _leftovers(store, key)
            raise
    except StoreError as error:
        raise StoreError(
            f"checkpoints cannot be kept at {store.uri(prefix)}: {error}{left}", kind=error.kind
        ) from error


def _try_writing(store: ObjectStore, key: str) -> None:
    store.put(key, _CONTENT)
    _require_content(store, key)
    upload = store.open_upload(key, size_hint=0)
    try:
        upload.write(_CONTENT)
        store.abort_upload(upload.pending())
    finally:
        upload.abort()
    for error in store.delete([key]).values():
        raise error
    if store.head(key) is not None:
        raise StoreError(f"{store.uri(key)} is still there after its deletion succeeded", kind="other")
    _warn_without_list_uploads(store, key)


def _require_content(store: ObjectStore, key: str) -> None:
    facts, whole, piece = store.head(key), store.read(key), store.read(key, 2, 9)
    if facts is None or facts.size != len(_CONTENT) or whole != _CONTENT or piece != _CONTENT[2:9]:
        raise StoreError(
            f"{store.uri(key)} was written, but what is read is not what was written; "
            "this store cannot keep checkpoints",
            kind="corrupt",
        )


def _warn_without_list_uploads(store: ObjectStore, key: str) -> None:
    """The one right that a run can do without: uploads that a crash left take space, and nothing else."""
    try:
        store.list_uploads(key)
    except StoreError as error:
        log.warning(
            "uploads that a crash leaves behind will not be found and take space; add the right, or a "
            "lifecycle rule AbortIncompleteMultipartUpload: %s",
            error,
        )


def _leftovers(store: ObjectStore, key: str) -> str:
    """Removes what is left of the probe; words for what cannot be removed."""
    left = []
    with suppress(StoreError):
        for pending in store.list_uploads(key):
            try:
                store.abort_upload(pending)
            except StoreError:
                left.append(f"the pending upload {pending.upload_id} of {store.uri(key)}")
    left += _undeleted(store, key)
    return f"; left behind: {', '.join(left)}" if left else ""


def _undeleted(store: ObjectStore, key: str) -> list[str]:
    try:
        if store.head(key) is None:
            return []
    except StoreError:  # nobody answers now, and whether the put came through is not known
        return [f"{store.uri(key)}, if it was written"]
    with suppress(StoreError):
        if not store.delete([key]):
            return []
    return [store.uri(key)]
