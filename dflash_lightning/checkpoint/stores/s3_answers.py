"""Answers of S3 as plain values, and the arguments that many calls share. No call but that of `pages`.

law   nothing that an old server may leave out is indexed
"""

import base64
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError, ResponseStreamingError

from dflash_lightning.checkpoint.stores.protocol import BytesLike, ObjectFacts
from dflash_lightning.checkpoint.stores.settings import StoreSettings

Answer = Mapping[str, Any]
PAGE_ENTRIES = 1000
"""Of a listing: the most that S3 gives at once."""


def facts_of(key: str, answer: Answer) -> ObjectFacts:
    """From one entry of a listing, a HEAD or a GET. Checksums of checksums are left out."""
    modified = answer.get("LastModified")
    size = answer["Size"] if "Size" in answer else answer["ContentLength"]
    whole = answer.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT"
    return ObjectFacts(
        key=key,
        size=int(size),
        modified=time.time() if modified is None else modified.timestamp(),
        crc32=from_base64(answer.get("ChecksumCRC32", "")) if whole else None,
        etag=answer.get("ETag"),
    )


def from_base64(checksum: str) -> str | None:
    """S3's form of a crc32 as 8 hex digits; None for anything else, such as "...-3", of three parts."""
    try:
        raw = base64.b64decode(checksum, validate=True)
    except ValueError:
        return None
    return raw.hex() if len(raw) == 4 else None


def to_base64(crc32: int) -> str:
    return base64.b64encode(crc32.to_bytes(4, "big")).decode()


def checksum_of(data: BytesLike, settings: StoreSettings) -> dict[str, Any]:
    return {"ChecksumCRC32": to_base64(zlib.crc32(data))} if settings.checksums else {}


def encryption_of(settings: StoreSettings) -> dict[str, Any]:
    arguments = {"ServerSideEncryption": settings.sse, "SSEKMSKeyId": settings.sse_kms_key_id}
    return {name: value for name, value in arguments.items() if value is not None}


def pages(client: Any, operation: str, field: str, bucket: str, prefix: str) -> Sequence[Answer]:
    """The entries of all pages of a listing."""
    found = client.get_paginator(operation).paginate(
        Bucket=bucket, Prefix=prefix, PaginationConfig={"PageSize": PAGE_ENTRIES}
    )
    return [entry for page in found for entry in page.get(field, [])]


def body_of(answer: Answer) -> bytes:
    """All bytes of a GET. A body that falls silent half-way is told apart from a server that never answered:
    botocore has not tried again yet."""
    try:
        data: bytes = answer["Body"].read()
    except ReadTimeoutError as error:
        raise ResponseStreamingError(error=error) from error
    return data


def leftovers_of(keys: Sequence[str], answer: Answer) -> dict[str, ClientError]:
    """What a bulk deletion did not delete: it answers 200 even when every single key failed."""
    deleted = {one.get("Key") for one in answer.get("Deleted", [])}
    failed = {one["Key"]: one for one in answer.get("Errors", [])}
    silent = {"Code": "InternalError", "Message": "the server said nothing about this key"}
    return {
        key: ClientError({"Error": failed.get(key, silent)}, "DeleteObjects")
        for key in keys
        if key in failed or key not in deleted
    }
