"""A bucket as a store. The only file that imports boto3; credentials come from its usual chain.

in    bucket and settings
law   every error is a StoreError without secrets, and nothing is trusted that can be compared: lengths,
      checksums, each key of a bulk deletion, what is there after an answer was lost
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import boto3.session
from botocore.config import Config
from botocore.exceptions import ClientError

from dflash_lightning.checkpoint.redact import protect, quiet_libraries
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import require_key
from dflash_lightning.checkpoint.stores.protocol import ObjectFacts, ObjectStore, PendingUpload, Upload
from dflash_lightning.checkpoint.stores.s3_answers import (
    body_of,
    checksum_of,
    encryption_of,
    facts_of,
    leftovers_of,
    pages,
)
from dflash_lightning.checkpoint.stores.s3_calls import Client, S3Calls
from dflash_lightning.checkpoint.stores.s3_errors import code_of, status_of
from dflash_lightning.checkpoint.stores.s3_multipart import Multipart
from dflash_lightning.checkpoint.stores.s3_upload import S3Upload
from dflash_lightning.checkpoint.stores.settings import StoreSettings

_KEYS_PER_DELETE = 1000
_NO_BULK = {"MissingContentMD5", "InvalidRequest", "NotImplemented", "MethodNotAllowed"}
"""Answers of servers that delete single objects only, or want an MD5 that FIPS machines cannot compute."""


class S3Store:
    """Connects at its first call, so a store can be made anywhere, and pickled into another process."""

    def __init__(self, bucket: str, settings: StoreSettings) -> None:
        self.bucket = bucket
        self.settings = settings
        self._calls = S3Calls(lambda: _connect(settings), bucket)

    def __reduce__(self) -> tuple[Any, ...]:
        return S3Store, (self.bucket, self.settings)

    def put(self, key: str, data: bytes, *, only_if_absent: bool = False) -> None:
        require_key(key)
        arguments = encryption_of(self.settings) | checksum_of(data, self.settings)
        if only_if_absent:
            arguments["IfNoneMatch"] = "*"
        try:
            self._calls.run(
                "write",
                key,
                lambda client: client.put_object(Bucket=self.bucket, Key=key, Body=data, **arguments),
            )
        except StoreError as error:
            # The answer to an earlier attempt may have been lost: then what is there is ours.
            if not (error.kind == "conflict" and self._holds(key, data)):
                raise

    def open_upload(self, key: str, *, size_hint: int) -> Upload:
        require_key(key)
        multipart = Multipart(self._calls, self, key, self.settings)
        return S3Upload(multipart, self.settings, size_hint=size_hint)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> bytes:
        require_key(key)
        if stop is not None and stop <= start:
            start, stop = 0, 1  # S3 has no empty range, but the answer tells whether the object is there
            return self.read(key, start, stop)[:0]
        whole = start == 0 and stop is None
        # Only whole objects can be checked against the checksum that the server keeps.
        asked = {"ChecksumMode": "ENABLED"} if whole else {"Range": f"bytes={start}-{_last(stop)}"}

        def work(client: Client) -> bytes:
            try:
                answer = client.get_object(Bucket=self.bucket, Key=key, **asked)
            except ClientError as error:
                if code_of(error) == "InvalidRange":  # starts behind the end
                    return b""
                raise
            return body_of(answer)

        return self._calls.run("read", key, work)

    def head(self, key: str) -> ObjectFacts | None:
        require_key(key)

        def work(client: Client) -> ObjectFacts | None:
            try:
                return facts_of(key, client.head_object(Bucket=self.bucket, Key=key, ChecksumMode="ENABLED"))
            except ClientError as error:
                if status_of(error) == 404:
                    return None
            # The answer to HEAD has no body: only GET tells why, be it that the object is missing.
            try:
                answer = client.get_object(Bucket=self.bucket, Key=key)
                answer["Body"].close()
            except ClientError as error:
                if code_of(error) == "NoSuchKey":
                    return None
                raise
            return facts_of(key, answer)

        return self._calls.run("look at", key, work)

    def list(self, prefix: str) -> Iterator[ObjectFacts]:
        found = self._calls.run(
            "list", prefix, lambda client: pages(client, "list_objects_v2", "Contents", self.bucket, prefix)
        )
        # Servers that keep folders inside list "a/b" before "a-b".
        return iter(
            sorted((facts_of(one["Key"], one) for one in found), key=lambda facts: facts.key.encode())
        )

    def delete(self, keys: Sequence[str]) -> dict[str, StoreError]:
        failed: dict[str, StoreError] = {}
        for start in range(0, len(keys), _KEYS_PER_DELETE):
            failed |= self._delete_page(keys[start : start + _KEYS_PER_DELETE])
        return failed

    def list_uploads(self, prefix: str) -> Sequence[PendingUpload]:
        found = self._calls.run(
            "list the pending uploads of",
            prefix,
            lambda client: pages(client, "list_multipart_uploads", "Uploads", self.bucket, prefix),
        )
        return [PendingUpload(one["Key"], one["UploadId"], one["Initiated"].timestamp()) for one in found]

    def abort_upload(self, pending: PendingUpload) -> None:
        def work(client: Client) -> None:
            try:
                client.abort_multipart_upload(Bucket=self.bucket, Key=pending.key, UploadId=pending.upload_id)
            except ClientError as error:
                if code_of(error) != "NoSuchUpload":
                    raise

        self._calls.run("abort the upload of", pending.key, work)

    def uri(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"

    def quick(self) -> ObjectStore:
        settings = self.settings
        return S3Store(
            self.bucket,
            replace(
                settings,
                max_attempts=min(settings.max_attempts, 3),
                connect_timeout_s=min(settings.connect_timeout_s, 3.0),
                read_timeout_s=min(settings.read_timeout_s, 10.0),
            ),
        )

    def _delete_page(self, keys: Sequence[str]) -> dict[str, StoreError]:
        for key in keys:
            require_key(key)

        def work(client: Client) -> dict[str, ClientError]:
            wanted = {"Objects": [{"Key": key} for key in keys]}
            try:
                return leftovers_of(keys, client.delete_objects(Bucket=self.bucket, Delete=wanted))
            except ClientError as error:
                if code_of(error) not in _NO_BULK:
                    raise
            for key in keys:
                client.delete_object(Bucket=self.bucket, Key=key)
            return {}

        left = self._calls.run("delete", keys[0], work)
        return {key: self._calls.failure("delete", key, error) for key, error in left.items()}

    def _holds(self, key: str, data: bytes) -> bool:
        facts = self.head(key)
        return facts is not None and facts.size == len(data) and self.read(key) == data


def _last(stop: int | None) -> str:
    return "" if stop is None else str(stop - 1)


def _connect(settings: StoreSettings) -> Client:
    """A new session each time, so that credentials are read anew from files and processes."""
    session = boto3.session.Session(profile_name=settings.profile, region_name=settings.region)
    client = session.client("s3", endpoint_url=settings.endpoint_url, config=_config(settings))
    quiet_libraries()
    credentials = session.get_credentials()

    def remember(**_: object) -> None:
        """Temporary credentials change by themselves: whatever signs next must be hidden as well."""
        if credentials is not None:
            frozen = credentials.get_frozen_credentials()
            protect(value for value in (frozen.access_key, frozen.secret_key, frozen.token) if value)

    client.meta.events.register("before-sign.s3", remember)
    return client


def _config(settings: StoreSettings) -> Config:
    return Config(
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
        retries={"mode": settings.retry_mode, "total_max_attempts": settings.max_attempts},
        s3={"addressing_style": "path" if settings.path_style else "auto"},
        max_pool_connections=settings.upload_threads + 16,  # downloads read ranges side by side
        tcp_keepalive=True,
        # Checksums are given with each call; what botocore would add by itself, old servers refuse.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
