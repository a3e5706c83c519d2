"""What the writer of one rank does with its shard, as any writer with a whole checkpoint.

in    where all ranks meet; a job that is the same on all of them
out   Published of the whole checkpoint, or a StoreError that is final: the snapshot is given up on all ranks
law   one attempt for all ranks together; what may be tried again is tried inside of it, until its deadline
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.layout import manifest_key
from dflash_lightning.checkpoint.manifest import Manifest
from dflash_lightning.checkpoint.publishing.confirmations import OverTCP
from dflash_lightning.checkpoint.publishing.publish import Published
from dflash_lightning.checkpoint.publishing.sharded import ShardedSave, publish_shard
from dflash_lightning.checkpoint.publishing.upload import Write
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.protocol import ObjectStore

CONNECT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Where ranks confirm their shards: a TCPStore in the process of rank 0. Travels to the writer."""

    host: str
    port: int
    rank: int
    world: int
    deadline_s: float
    """Of each save, from the start of its upload."""


@dataclass(frozen=True)
class PublishedByRank0:
    """What another rank knows of it."""

    manifest_key: str
    uri: str
    retries: int = 0
    superfluous: tuple[Manifest, ...] = ()


def open_meeting(host: str) -> Any:
    """On rank 0: the TCPStore, alive as long as somebody holds it. Its `port` is for the other ranks.

    Raises: StoreError.
    """
    return _tcp_store(host, 0, is_master=True, wait_for_workers=False)


def publish_as_rank(
    meeting: Meeting, store: ObjectStore, prefix: str, job: SaveJob, write: Write, *, nonce: str = ""
) -> Published | PublishedByRank0:
    """`nonce`: of the claim, on rank 0. Raises: StoreError of a kind that no writer tries again."""
    try:
        client = _tcp_store(meeting.host, meeting.port, is_master=False, timeout=timedelta(seconds=CONNECT_S))
        published = publish_shard(
            ShardedSave(
                store=store,
                prefix=prefix,
                job=job,
                confirmations=OverTCP(client),
                save_id=f"{job.step}-{job.kind}",
                rank=meeting.rank,
                world=meeting.world,
                deadline_s=meeting.deadline_s,
                nonce=nonce,
            ),
            write,
        )
    except Exception as error:
        text = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        raise StoreError(text, kind="other") from error
    if isinstance(published, str):
        return PublishedByRank0(manifest_key(published), store.uri(join_key(prefix, published)))
    return published


def _tcp_store(host: str, port: int, **options: Any) -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    try:
        return TCPStore(host, port, **options)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise StoreError(f"ranks cannot meet at {host}, port {port}: {reason}", kind="other") from error
