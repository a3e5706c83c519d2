"""The requests of one multipart upload: create, parts, complete, abort.

in    parts as bytes; size and crc32 of the whole
out   facts that the server has confirmed
law   an answer to Complete that was lost is no failure if the object is there, whole, and ours
"""

import hashlib
import logging
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from botocore.exceptions import ClientError

from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.protocol import ObjectFacts, ObjectStore, PendingUpload
from dflash_lightning.checkpoint.stores.s3_answers import checksum_of, encryption_of, to_base64
from dflash_lightning.checkpoint.stores.s3_calls import Client, S3Calls
from dflash_lightning.checkpoint.stores.s3_errors import code_of
from dflash_lightning.checkpoint.stores.settings import StoreSettings

log = logging.getLogger(__name__)
Part = dict[str, Any]
_NO_CHECKSUMS: Final = {"NotImplemented", "InvalidArgument", "InvalidRequest"}
"""Answers of servers that do not know checksums of whole objects."""
_MAYBE_DONE: Final = {"missing", "transient", "endpoint"}
"""Kinds of failure after which the object may be there all the same."""
_READ_BYTES: Final = 64 << 20


class Multipart:
    """Begins the upload when made. Its calls may come from several threads."""

    def __init__(self, calls: S3Calls, store: ObjectStore, key: str, settings: StoreSettings) -> None:
        self._calls = calls
        self._store = store
        self._settings = settings
        self.uri = store.uri(key)
        answer = self._create(key)
        self._whole_checksum = answer.get("ChecksumType") == "FULL_OBJECT"
        self.pending = PendingUpload(key, answer["UploadId"], time.time())

    def send(self, number: int, body: bytes | bytearray) -> Part:
        """One part, numbered from 1; the server compares its checksum."""
        arguments = self._names() | checksum_of(body, self._settings)
        answer = self._calls.run(
            "upload to",
            self.pending.key,
            lambda client: client.upload_part(PartNumber=number, Body=body, **arguments),
        )
        part = {"PartNumber": number, "ETag": answer["ETag"]}
        if "ChecksumCRC32" in answer:  # old servers keep none
            part["ChecksumCRC32"] = answer["ChecksumCRC32"]
        return part

    def complete(self, parts: Sequence[Part], size: int, crc32: int) -> ObjectFacts:
        """Commit, then ask the server what it has. Raises: StoreError."""
        arguments: dict[str, Any] = {"MultipartUpload": {"Parts": list(parts)}, **self._names()}
        if self._whole_checksum:
            arguments |= {"ChecksumCRC32": to_base64(crc32), "ChecksumType": "FULL_OBJECT"}
        try:
            self._calls.run(
                "upload to", self.pending.key, lambda client: client.complete_multipart_upload(**arguments)
            )
        except StoreError as error:
            if not (error.kind in _MAYBE_DONE and self._is_there(parts, size, crc32)):
                raise
            log.warning("the answer was lost, but %s is there, whole", self.uri)
        return self._confirmed(size, crc32)

    def abort(self) -> None:
        try:
            self._store.abort_upload(self.pending)
        except StoreError as error:
            log.warning(
                "parts of %s remain on the server until its next cleanup (upload %s): %s",
                self.uri,
                self.pending.upload_id,
                error,
            )

    def _create(self, key: str) -> dict[str, Any]:
        arguments = {"Bucket": self._calls.bucket, "Key": key, **encryption_of(self._settings)}
        checksum = {"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"}

        def work(client: Client) -> dict[str, Any]:
            if self._settings.checksums:
                try:
                    return dict(client.create_multipart_upload(**arguments, **checksum))
                except ClientError as error:
                    if code_of(error) not in _NO_CHECKSUMS:
                        raise
                self._settings = replace(self._settings, checksums=False)
            return dict(client.create_multipart_upload(**arguments))

        return self._calls.run("upload to", key, work)

    def _names(self) -> dict[str, Any]:
        return {
            "Bucket": self._calls.bucket,
            "Key": self.pending.key,
            "UploadId": self.pending.upload_id,
        }

    def _confirmed(self, size: int, crc32: int) -> ObjectFacts:
        facts = self._store.head(self.pending.key)
        if facts is None:
            raise StoreError(f"{self.uri} was accepted but is not there; write it again", kind="corrupt")
        if facts.size != size or facts.crc32 not in (None, f"{crc32:08x}"):
            raise StoreError(
                f"{self.uri} holds {facts.size:,} bytes with crc32 {facts.crc32}, but {size:,} bytes with "
                f"{crc32:08x} were written; write it again",
                kind="corrupt",
            )
        return replace(facts, crc32=f"{crc32:08x}")

    def _is_there(self, parts: Sequence[Part], size: int, crc32: int) -> bool:
        with suppress(StoreError):  # then the first error tells more
            facts = self._store.head(self.pending.key)
            if facts is None or facts.size != size:
                return False
            if facts.crc32 is not None:
                return facts.crc32 == f"{crc32:08x}"
            return facts.etag == etag_of(parts) or self._crc32_read_back(size) == crc32
        return False

    def _crc32_read_back(self, size: int) -> int:
        """For servers that keep no checksum: an object of the same length may be an older one."""
        crc32 = 0
        for start in range(0, size, _READ_BYTES):
            crc32 = zlib.crc32(self._store.read(self.pending.key, start, start + _READ_BYTES), crc32)
        return crc32


def etag_of(parts: Sequence[Part]) -> str | None:
    """The ETag that S3 gives to an object of these parts; None where theirs are not MD5s (encryption)."""
    try:
        digests = b"".join(bytes.fromhex(part["ETag"].strip('"')) for part in parts)
    except ValueError:
        return None
    return f'"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"'
