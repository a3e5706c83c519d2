"""A bucket as a store. The only file that imports boto3; credentials come from its usual chain.

in    bucket and settings
law   every error is a StoreError without secrets, and nothing is trusted that can be compared: lengths,
      checksums, each key of a bulk deletion, what is there after an answer was lost
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import boto3.session
from botocore.config import Config
from botocore.exceptions import InvalidEndpointConfigurationError

from dflash_lightning.checkpoint.redact import protect, quiet_libraries
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import require_key
from dflash_lightning.checkpoint.stores.protocol import ObjectFacts, ObjectStore, PendingUpload, Upload
from dflash_lightning.checkpoint.stores.s3_answers import checksum_of, encryption_of, facts_of, pages
from dflash_lightning.checkpoint.stores.s3_calls import Client, S3Calls
from dflash_lightning.checkpoint.stores.s3_credentials import load_credentials
from dflash_lightning.checkpoint.stores.s3_multipart import Multipart
from dflash_lightning.checkpoint.stores.s3_requests import (
    KEYS_PER_DELETE,
    abort,
    delete,
    get,
    head,
    put,
    put_if_absent,
)
from dflash_lightning.checkpoint.stores.s3_upload import S3Upload
from dflash_lightning.checkpoint.stores.settings import StoreSettings


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
        arguments = {"Body": data, **encryption_of(self.settings), **checksum_of(data, self.settings)}
        request = put_if_absent if only_if_absent else put
        try:
            self._calls.run("write", key, lambda client: request(client, self.bucket, key, arguments))
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
            return self.read(key, 0, 1)[:0]  # S3 has no empty range, but tells whether the object is there
        return self._calls.run("read", key, lambda client: get(client, self.bucket, key, start, stop))

    def head(self, key: str) -> ObjectFacts | None:
        require_key(key)
        return self._calls.run("look at", key, lambda client: head(client, self.bucket, key))

    def list(self, prefix: str) -> Iterator[ObjectFacts]:
        found = self._calls.run(
            "list", prefix, lambda client: pages(client, "list_objects_v2", "Contents", self.bucket, prefix)
        )
        # Servers that keep folders inside list "a/b" before "a-b".
        return iter(
            sorted((facts_of(one["Key"], one) for one in found), key=lambda facts: facts.key.encode())
        )

    def delete(self, keys: Sequence[str]) -> dict[str, StoreError]:
        for key in keys:
            require_key(key)
        failed: dict[str, StoreError] = {}
        for start in range(0, len(keys), KEYS_PER_DELETE):
            page = keys[start : start + KEYS_PER_DELETE]
            left = self._calls.run("delete", page[0], partial(delete, bucket=self.bucket, keys=page))
            failed |= {key: self._calls.failure("delete", key, error) for key, error in left.items()}
        return failed

    def list_uploads(self, prefix: str) -> Sequence[PendingUpload]:
        found = self._calls.run(
            "list the pending uploads of",
            prefix,
            lambda client: pages(client, "list_multipart_uploads", "Uploads", self.bucket, prefix),
        )
        return [PendingUpload(one["Key"], one["UploadId"], one["Initiated"].timestamp()) for one in found]

    def abort_upload(self, pending: PendingUpload) -> None:
        self._calls.run(
            "abort the upload of", pending.key, lambda client: abort(client, self.bucket, pending)
        )

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

    def _holds(self, key: str, data: bytes) -> bool:
        facts = self.head(key)
        return facts is not None and facts.size == len(data) and self.read(key) == data


def _connect(settings: StoreSettings) -> Client:
    """A new session each time, so that credentials are read anew from files and processes."""
    session = boto3.session.Session(profile_name=settings.profile, region_name=settings.region)
    credentials = load_credentials(session.get_credentials)
    try:
        client = session.client("s3", endpoint_url=settings.endpoint_url, config=_config(settings))
    except ValueError as error:  # of AWS_ENDPOINT_URL or a profile, which the settings do not see
        raise InvalidEndpointConfigurationError(msg=str(error)) from error
    quiet_libraries()

    def remember(**_: object) -> None:
        """Temporary credentials change by themselves: whatever signs next must be hidden as well."""
        if credentials is not None:
            frozen = load_credentials(credentials.get_frozen_credentials)
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
