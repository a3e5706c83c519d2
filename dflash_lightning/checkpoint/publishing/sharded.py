"""A checkpoint in shards: each rank stores its own, and one manifest makes all of them a checkpoint.

in    on every rank the same job, save id and deadline; the rank's own `write`
out   Published on rank 0, the checkpoint's name on the others; on a failure a StoreError on every rank
law   shards -> reports of all ranks -> manifest -> pointers -> deletions. One report missing at the deadline,
      or one failure, and there is no manifest; shards that nobody could delete are leftovers by their age
law   only background threads or writers wait here, never a training loop: no collective is used
law   what a rank has reported is never written again: its writer may die and be replaced at any moment
"""

import logging
import random
import time
from contextlib import suppress
from dataclasses import dataclass

from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.layout import new_name, shard_key
from dflash_lightning.checkpoint.listing import Listing, list_manifests
from dflash_lightning.checkpoint.manifest import DataFile, Manifest
from dflash_lightning.checkpoint.publishing.confirmations import Confirmations, ShardReport, wait_for
from dflash_lightning.checkpoint.publishing.publish import Durable, Published, commit, finish, make_manifest
from dflash_lightning.checkpoint.publishing.upload import Write, upload_data, withdraw
from dflash_lightning.checkpoint.redact import known_secrets, redact_text
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.protocol import ObjectStore
from dflash_lightning.checkpoint.verify import check_facts
from dflash_lightning.checkpoint.writing.retrying import Outage

log = logging.getLogger(__name__)
_DONE = "published "
_ABANDONED = "abandoned: "
"""No manifest was tried: the shards may go. Any other verdict leaves them, since one may stand."""
_VERDICT_S = 10.0
"""The other ranks wait so much longer for rank 0's verdict: it may decide at the very deadline."""


@dataclass(frozen=True, kw_only=True)
class ShardedSave:
    """One save of many ranks. Equal on all of them, but for `rank`."""

    store: ObjectStore
    prefix: str
    job: SaveJob
    confirmations: Confirmations
    save_id: str
    """Of this save alone, such as a counter: reports of two saves must not mix."""
    rank: int
    world: int
    deadline_s: float
    """From the start of each rank's own upload until all must have reported."""
    nonce: str = ""
    """Of the claim, on rank 0: where another run has it by then, nothing is published; "": unasked."""


def publish_shard(save: ShardedSave, write: Write) -> Published | str:
    """Blocks until the verdict. Call it on every rank, in the background.

    A writer that takes a dead one's place goes on behind what that one had reported. Rank 0 gets the name
    alone, too, where the other one had published it and it cannot be read now, or a newer one replaced it.

    Raises: StoreError with the ranks that failed or did not report.
    """
    started = time.monotonic()
    deadline = started + save.deadline_s
    said = save.confirmations.get(_at(save, "verdict"))
    if said is not None:  # to a writer that died
        name = _obeyed(said)
        return name if save.rank != 0 else _finish_again(save, name, started)
    name = _agree_on_name(save, deadline)
    before = _reported(save)
    file = before or _store_shard(save, name, write, deadline)
    if save.rank == 0:
        return _decide(save, name, file, started, deadline, again=before is not None)
    return _obey_verdict(save, file, deadline)


def _obeyed(verdict: str) -> str:
    """The name of what was published. Raises: StoreError of any other verdict."""
    if not verdict.startswith(_DONE):
        raise StoreError(verdict.removeprefix(_ABANDONED), kind="other")
    return verdict.removeprefix(_DONE)


def _reported(save: ShardedSave) -> DataFile | None:
    """What the writer before this one has stored and verified: a manifest may stand on it by now."""
    text = save.confirmations.get(_at(save, f"rank={save.rank}"))
    return None if text is None else ShardReport.from_text(text).file


def _obey_verdict(save: ShardedSave, file: DataFile, deadline: float) -> str:
    verdict = wait_for(save.confirmations, _at(save, "verdict"), deadline + _VERDICT_S)
    if verdict is None:  # it may have been published all the same: the shard must stay
        raise StoreError(
            f"rank 0 did not say within {save.deadline_s:.0f} s whether step {save.job.step} was published; "
            "its shard is left for the next start to clean up",
            kind="transient",
        )
    if verdict.startswith(_ABANDONED):
        withdraw(save.store, save.prefix, file)
    return _obeyed(verdict)


def _agree_on_name(save: ShardedSave, deadline: float) -> str:
    if save.rank == 0:
        before = save.confirmations.get(_at(save, "name"))  # of a writer that died, and whose place this is
        name = before or new_name(save.job.step)
        save.confirmations.put(_at(save, "name"), name)
        return name
    found = wait_for(save.confirmations, _at(save, "name"), deadline)
    if found is None:
        raise StoreError(
            f"rank 0 did not begin to save step {save.job.step} within {save.deadline_s:.0f} s",
            kind="transient",
        )
    return found


def _store_shard(save: ShardedSave, name: str, write: Write, deadline: float) -> DataFile:
    """Uploads, verifies and reports; a failure is reported as well, so that nobody waits for it."""
    try:
        file = _upload(save, shard_key(name, save.rank), write, deadline)
    except Exception as error:
        reason = redact_text(f"{type(error).__name__}: {error}")
        _report(save, ShardReport(save.rank, None, reason))
        if save.rank == 0:
            save.confirmations.put(_at(save, "verdict"), _ABANDONED + _failed(save, [f"rank 0: {reason}"]))
        raise
    _report(save, ShardReport(save.rank, file))
    return file


def _upload(save: ShardedSave, key: str, write: Write, deadline: float) -> DataFile:
    """Again and again until the deadline, where the fault may pass: the other ranks wait so long anyway."""
    outage = Outage()
    while True:
        try:
            return upload_data(save.store, save.prefix, key, write, size_hint=save.job.size_hint)
        except StoreError as error:
            pause = outage.missed(error.kind, now=time.monotonic(), random=random.random())
            if pause is None or time.monotonic() + pause > deadline:
                raise
            log.warning(
                "the shard of step %d is not stored yet: %s; trying again in %.0f s",
                *(save.job.step, redact_text(str(error), known_secrets()), pause),
            )
            time.sleep(pause)


def _report(save: ShardedSave, report: ShardReport) -> None:
    save.confirmations.put(_at(save, f"rank={save.rank}"), report.to_text())


def _decide(
    save: ShardedSave, name: str, own: DataFile, started: float, deadline: float, *, again: bool
) -> Published:
    """Rank 0. Its verdict is put after the manifest stands, or after it is certain that none will. `again`:
    a writer before this one had come as far, perhaps farther."""
    certain = True
    try:
        files = _collect(save, deadline)
        certain = not again  # the other one may have written the manifest
        known, before = _look_for(save, name)
        certain = known is None
        if again and known is None:
            for file in files:  # it may have been about to take them away
                check_facts(save.store, save.prefix, file)
    except StoreError as error:
        reason = redact_text(str(error))
        save.confirmations.put(_at(save, "verdict"), _ABANDONED + reason if certain else reason)
        if certain:
            withdraw(save.store, save.prefix, own)
        raise
    manifest = known or make_manifest(save.job, name, files, before)
    try:
        retries = 0 if known else commit(save.store, save.prefix, manifest, save.nonce)
    except Exception as error:
        save.confirmations.put(_at(save, "verdict"), redact_text(f"{type(error).__name__}: {error}"))
        raise
    save.confirmations.put(_at(save, "verdict"), f"{_DONE}{name}")
    return finish(save.store, save.prefix, save.job, _durable(manifest, before, retries, started))


def _finish_again(save: ShardedSave, name: str, started: float) -> Published | str:
    """Rank 0, for a writer that died behind its verdict."""
    with suppress(StoreError):  # the next save writes the pointers
        manifest, before = _look_for(save, name)
        if manifest is not None:
            return finish(save.store, save.prefix, save.job, _durable(manifest, before, 0, started))
    return name


def _look_for(save: ShardedSave, name: str) -> tuple[Manifest | None, Listing]:
    """The manifest of this save, by a writer that died before it could say so, and all others."""
    found = list_manifests(save.store, save.prefix)
    known = next((manifest for manifest in found.manifests if manifest.name == name), None)
    return known, Listing(tuple(m for m in found.manifests if m is not known), found.broken)


def _durable(manifest: Manifest, before: Listing, retries: int, started: float) -> Durable:
    return Durable(manifest, before, retries, time.monotonic() - started)


def _collect(save: ShardedSave, deadline: float) -> tuple[DataFile, ...]:
    """The shards of all ranks, in their order. The first failure ends the wait for the rest."""
    files, problems = [], []
    for rank in range(save.world):
        text = wait_for(
            save.confirmations, _at(save, f"rank={rank}"), deadline, stop=lambda: _any_failed(save)
        )
        report = None if text is None else ShardReport.from_text(text)
        if report is not None and report.file is not None:
            files.append(report.file)
        else:
            problems.append(f"rank {rank}: {report.reason if report is not None else 'no report'}")
    if problems:
        raise StoreError(_failed(save, problems), kind="other")
    return tuple(files)


def _any_failed(save: ShardedSave) -> bool:
    texts = [save.confirmations.get(_at(save, f"rank={rank}")) for rank in range(save.world)]
    return any(text is not None and ShardReport.from_text(text).file is None for text in texts)


def _failed(save: ShardedSave, problems: list[str]) -> str:
    return (
        f"step {save.job.step} was not published, since not all of {save.world} ranks stored their shard "
        f"within {save.deadline_s:.0f} s: {'; '.join(problems)}"
    )


def _at(save: ShardedSave, what: str) -> str:
    return f"checkpoint/{save.save_id}/{what}"
