"""From bytes to a checkpoint that others may rely on, and the names of older ones that may go then.

in    a store, a prefix, the job, a function that writes the state into a file
out   Published, or the StoreError of the first step that failed; nothing is half published then
law   data (unique key, verified) -> manifest (read back) -> pointers, in this order, and deletions
      (`removal.sweep`) later: killed between any two calls, the newest complete checkpoint is this one or
      the one before
law   nothing is superfluous while a pointer may name it: deletions wait for the pointers
"""

import logging
import time
from dataclasses import dataclass

from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.keeping.pointers import named, write_pointers
from dflash_lightning.checkpoint.keeping.removal import remove
from dflash_lightning.checkpoint.keeping.retention import to_delete
from dflash_lightning.checkpoint.layout import data_key, new_name
from dflash_lightning.checkpoint.listing import Listing, age_order, list_manifests
from dflash_lightning.checkpoint.manifest import DataFile, Manifest
from dflash_lightning.checkpoint.publishing.upload import Write, upload_data
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.protocol import ObjectStore
from dflash_lightning.checkpoint.verify import ATTEMPTS
from dflash_lightning.checkpoint.versions import versions

log = logging.getLogger(__name__)
SESSION = "session"
"""Name of the fact that tells which start of a run it comes from."""


@dataclass(frozen=True)
class Published:
    """A checkpoint that is durable and verified."""

    manifest: Manifest
    uri: str
    """Of this very checkpoint, as resume understands it."""
    retries: int
    """Tries of the manifest that failed before one succeeded."""
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
    """What was there when it began."""
    retries: int
    seconds: float


def publish(store: ObjectStore, prefix: str, job: SaveJob, write: Write) -> Published:
    """Blocks until it is done: call it from the writer.

    Raises: StoreError; whatever `write` raises. The upload is aborted then, and no manifest remains.
    """
    started = time.monotonic()
    before = list_manifests(store, prefix)  # first: a store that does not answer costs no upload
    name = new_name(job.step)
    file = upload_data(store, prefix, data_key(name), write, size_hint=job.size_hint)
    manifest = make_manifest(job, name, (file,), before)
    retries = commit(store, prefix, manifest)
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


def commit(store: ObjectStore, prefix: str, manifest: Manifest) -> int:
    """From here on it is a checkpoint. After a failure neither manifest nor data is left, if that can be.

    Returns the number of failed tries: the data is stored, and must not be lost to one lost answer.
    """
    key, text = join_key(prefix, manifest.key), manifest.to_json()
    try:
        for failures in range(ATTEMPTS):
            try:
                _put_once(store, key, text)
            except StoreError as error:
                if not error.retryable or failures == ATTEMPTS - 1:
                    raise
            else:
                return failures
    except BaseException:
        remove(store.quick(), prefix, [manifest])
        raise
    raise AssertionError("the last failure is raised")


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
