"""Requests whose answers need a second look, each a function of a client. Errors are botocore's own here.

law   "not there" is a value where the protocol says so, and never guessed from an answer without words
"""

from collections.abc import Sequence
from typing import Any, Final

from botocore.exceptions import ClientError

from dflash_lightning.checkpoint.stores.protocol import ObjectFacts, PendingUpload
from dflash_lightning.checkpoint.stores.s3_answers import body_of, facts_of, leftovers_of
from dflash_lightning.checkpoint.stores.s3_calls import Client
from dflash_lightning.checkpoint.stores.s3_errors import code_of, status_of

KEYS_PER_DELETE: Final = 1000
_NO_BULK: Final = {"MissingContentMD5", "InvalidRequest", "NotImplemented", "MethodNotAllowed"}
"""Answers of servers that delete single objects only, or want an MD5, which botocore no longer sends."""


def put(client: Client, bucket: str, key: str, arguments: dict[str, Any]) -> None:
    client.put_object(Bucket=bucket, Key=key, **arguments)


def put_if_absent(client: Client, bucket: str, key: str, arguments: dict[str, Any]) -> None:
    """Where the server knows no conditions, a look before the put has to do."""
    try:
        client.put_object(Bucket=bucket, Key=key, IfNoneMatch="*", **arguments)
        return
    except ClientError as error:
        if code_of(error) != "NotImplemented":
            raise
    if head(client, bucket, key) is not None:
        raise ClientError({"Error": {"Code": "PreconditionFailed"}}, "PutObject")
    client.put_object(Bucket=bucket, Key=key, **arguments)


def get(client: Client, bucket: str, key: str, start: int, stop: int | None) -> bytes:
    """Bytes [start, stop), at least one asked for; a whole object is compared with its checksum."""
    last = "" if stop is None else stop - 1
    whole = start == 0 and stop is None
    asked = {"ChecksumMode": "ENABLED"} if whole else {"Range": f"bytes={start}-{last}"}
    try:
        return body_of(client.get_object(Bucket=bucket, Key=key, **asked))
    except ClientError as error:
        if code_of(error) == "InvalidRange":  # it starts behind the end
            return b""
        raise


def head(client: Client, bucket: str, key: str) -> ObjectFacts | None:
    """A HEAD that fails has no words, so a GET tells why: S3 says 403 to the HEAD of a missing object when
    the right to list is missing too."""
    try:
        return facts_of(key, client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED"))
    except ClientError as error:
        if status_of(error) == 404:
            return None
    try:
        answer = client.get_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if code_of(error) == "NoSuchKey":
            return None
        raise
    answer["Body"].close()
    return facts_of(key, answer)


def delete(client: Client, bucket: str, keys: Sequence[str]) -> dict[str, ClientError]:
    """At most `KEYS_PER_DELETE` keys. What remains, and why."""
    try:
        wanted = {"Objects": [{"Key": key} for key in keys]}
        return leftovers_of(keys, client.delete_objects(Bucket=bucket, Delete=wanted))
    except ClientError as error:
        if code_of(error) not in _NO_BULK:
            raise
    left = {}
    for key in keys:
        try:
            client.delete_object(Bucket=bucket, Key=key)
        except ClientError as error:
            left[key] = error
    return left


def abort(client: Client, bucket: str, pending: PendingUpload) -> None:
    try:
        client.abort_multipart_upload(Bucket=bucket, Key=pending.key, UploadId=pending.upload_id)
    except ClientError as error:
        if code_of(error) != "NoSuchUpload":
            raise
