"""From bytes to a checkpoint that others may rely on, and the names of older ones that may go then.

in    a store, a prefix, the job, a function that writes the state into a file; the nonce of the claim
out   Published, or the StoreError of the first step that failed; nothing is half published then
law   data (unique key, verified) -> manifest (read back) -> pointers, in this order, and deletions
      (`removal.sweep`) later: killed between any two calls, the newest complete checkpoint is this one or
      the one before
law   nothing is superfluous while a pointer may name it: deletions wait for the pointers
law   a writer may outlive its run: it publishes nothing where another has the claim by then
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dflash_lightning.checkpoint.claiming.owner import require_ours
from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.keeping.pointers import named, write_pointers
from dflash_lightning.checkpoint.keeping.removal import remove
from dflash_lightning.checkpoint.keeping.retention import to_delete
from dflash_lightning.checkpoint.layout import data_key, new_name
from dflash_lightning.checkpoint.listing import Listing, age_order, list_manifests
from dflash_lightning.checkpoint.manifest import DataFile, Manifest
from dflash_lightning.checkpoint.publishing.upload import Write, upload_data, withdraw
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.protocol import ObjectStore
from dflash_lightning.checkpoint.verify import ATTEMPTS
from dflash_lightning.checkpoint.versions import versions

log = logging.getLogger(__name__)
T = TypeVar("T")
SESSION = "session"
"""Name of the fact that tells which start of a run it comes from."""


@dataclass(frozen=True)
class Published:
    """A checkpoint that is durable and verified."""

    manifest: Manifest
    uri: str
    """Of this very checkpoint, as resume understands it."""
    retries: int
    """Tries behind the upload that failed before one succeeded."""
    seconds: float
    """From the start of the upload until it was durable."""
    superfluous: tuple[Manifest, ...] = ()
    """Older checkpoints that nobody needs any more, the oldest first: for `removal.sweep`. None while a
    pointer could not be written."""
    problems: tuple[str, ...] = ()
    """Pointers that could not be written: logged, and tried again by the next publish."""

    @property
    def manifest_key(self) -> str:
        """Below the prefix."""
        return self.manifest.key


@dataclass(frozen=True)
class Durable:
    """Between the manifest and the pointers."""

    manifest: Manifest
    before: Listing
    """What was there when its data was stored."""
    retries: int
    seconds: float


def publish(store: ObjectStore, prefix: str, job: SaveJob, write: Write, *, nonce: str = "") -> Published:
    """Blocks until it is done: call it from the writer. `nonce`: of the claim that it needs; "": none.

    Raises: StoreError, of kind "conflict" that names the new owner where the claim is lost; whatever `write`
    raises. The upload is aborted then, and no manifest remains.
    """
    started = time.monotonic()
    name = new_name(job.step)
    file = upload_data(store, prefix, data_key(name), write, size_hint=job.size_hint)
    try:  # behind the upload, which takes minutes: others may have published by now
        before, failures = _tried(lambda: list_manifests(store, prefix))
    except BaseException:
        withdraw(store, prefix, file)
        raise
    manifest = make_manifest(job, name, (file,), before)
    retries = failures + commit(store, prefix, manifest, nonce)
    durable = Durable(manifest, before, retries, time.monotonic() - started)
    return finish(store, prefix, job, durable)


def make_manifest(job: SaveJob, name: str, files: tuple[DataFile, ...], before: Listing) -> Manifest:
    return Manifest(
        name=name,
        serial=_serial(job, before),
        run_id=job.run_id,
        step=job.step,
        epoch=job.epoch,
        kind=job.kind,
        created=time.time(),
        files=files,
        metrics=dict(job.metrics),
        monitor=job.retention.monitor,
        mode=job.retention.mode,
        facts={"versions": versions(), **({SESSION: job.session} if job.session else {}), **job.facts},
    )


def _serial(job: SaveJob, before: Listing) -> int:
    """Above all others; but a save that comes late, since a newer one went first, queues up behind that."""
    later = [
        known.serial
        for known in before.manifests
        if job.session and known.facts.get(SESSION) == job.session and known.step > job.step
    ]
    return min(later, default=1 + max((known.serial for known in before.manifests), default=0))


def commit(store: ObjectStore, prefix: str, manifest: Manifest, nonce: str = "") -> int:
    """From here on it is a checkpoint. After a failure neither manifest nor data is left, if that can be.

    Returns the number of failed tries.
    """
    key, text = join_key(prefix, manifest.key), manifest.to_json()

    def put_as_owner() -> None:
        if nonce:
            require_ours(store, prefix, nonce)
        _put_once(store, key, text)

    try:
        return _tried(put_as_owner)[1]
    except BaseException:
        remove(store.quick(), prefix, [manifest])
        raise


def _tried(call: Callable[[], T]) -> tuple[T, int]:
    """What it returns, and how often it failed before: the data is stored, and must not be lost to one lost
    answer."""
    failures = 0
    while True:
        try:
            return call(), failures
        except StoreError as error:
            failures += 1
            if not error.retryable or failures == ATTEMPTS:
                raise


def _put_once(store: ObjectStore, key: str, text: bytes) -> None:
    try:
        store.put(key, text, only_if_absent=True)
    except StoreError as error:
        if error.kind != "conflict":  # the name is unique: what is there is our own, its answer lost
            raise
    if store.read(key) != text:
        raise StoreError(f"{store.uri(key)} is not what was written there", kind="corrupt")


def finish(store: ObjectStore, prefix: str, job: SaveJob, durable: Durable) -> Published:
    """Pointers, and what may go. Nothing here fails the checkpoint, which is there already, nor holds up the
    next one for long: a pointer that cannot be written soon is written by the next publish."""
    manifest, before = durable.manifest, durable.before
    everything = sorted((manifest, *before.manifests), key=age_order, reverse=True)
    going = to_delete(everything, job.retention, job.run_id)
    targets = named([known for known in everything if known not in going])
    had_best = any(known.value(known.monitor) is not None for known in everything)  # else no request for it
    problems = write_pointers(store.quick(), prefix, targets, drop=had_best)
    waits = "; older checkpoints stay until the next save writes it" if going else ""
    for problem in problems:
        log.warning("step %d is saved, but: %s%s", manifest.step, problem, waits)
    return Published(
        manifest,
        store.uri(join_key(prefix, manifest.name)),
        durable.retries,
        durable.seconds,
        superfluous=() if problems else tuple(going),
        problems=tuple(map(str, problems)),
    )
