"""One call to S3 after another: attempts that botocore does not make, and errors for people.

in    what to do with a client, and where
out   its result, or a StoreError without secrets
law   a server that asks to slow down gets fewer requests at once, also those of a new session
law   expired or replaced credentials cost one more attempt with a new session, a bit that changed on its
      way is sent again; botocore itself repeats what the network and a busy server spoil
"""

import logging
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, IncompleteReadError, ResponseStreamingError

from dflash_lightning.checkpoint.redact import redact_text
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.s3_errors import Place, as_store_error, code_of
from dflash_lightning.checkpoint.stores.s3_lanes import Lanes

T = TypeVar("T")
Client = Any
log = logging.getLogger(__name__)

_ATTEMPTS: Final = 3
"""Of what botocore gives up at once: wrong checksums, and answers that break off."""
RIGHTS: Final = {
    "write": "s3:PutObject",
    "upload to": "s3:PutObject",
    "read": "s3:GetObject",
    "look at": "s3:GetObject",
    "list": "s3:ListBucket",
    "delete": "s3:DeleteObject",
    "list the pending uploads of": "s3:ListBucketMultipartUploads",
    "abort the upload of": "s3:AbortMultipartUpload",
}
"""What can be done, in words, and the right of a bucket policy that it needs."""


class S3Calls:
    """The client in use and how to make a new one. One for all threads of a store."""

    def __init__(self, connect: Callable[[], Client], bucket: str) -> None:
        self.bucket = bucket
        self.lanes = Lanes()
        self._connect = connect
        self._client: Client = None
        self._lock = threading.Lock()

    def run(self, action: str, key: str, work: Callable[[Client], T]) -> T:
        """`work` with a client, once more where that can help.

        Raises: StoreError. The original is its cause, but nothing raw is left in the traceback's chain.
        """
        refreshed = False
        for attempt in range(1, _ATTEMPTS + 2):
            client: Client = None
            try:
                client = self._current()
                return work(client)
            except (BotoCoreError, ClientError) as error:
                failure, retry = self.failure(action, key, error, client), _breaks(error)
            finally:
                self.lanes.leave()
            if failure.kind == "credentials" and client is not None and not refreshed:
                refreshed = True
                self._forget(client)
            elif attempt >= _ATTEMPTS or not (failure.kind == "corrupt" or retry):
                raise failure
            log.warning("once more: %s", failure)
        raise AssertionError("the last attempt returns or raises")

    def failure(self, action: str, key: str, error: Exception, client: Client = None) -> StoreError:
        """The error to raise for `error`, with what this store knows of the place."""
        client = client or self._client
        endpoint = "AWS" if client is None else redact_text(client.meta.endpoint_url)
        return as_store_error(error, Place(action, RIGHTS[action], self.bucket, key, endpoint))

    def _current(self) -> Client:
        with self._lock:
            if self._client is None:
                client = self._connect()
                self.lanes.watch(client)
                self._client = client
            return self._client

    def _forget(self, client: Client) -> None:
        """So that the next call makes a session that reads credentials anew; once for many threads."""
        with self._lock:
            if self._client is client:
                self._client = None


def _breaks(error: Exception) -> bool:
    """Answers whose body breaks off: botocore repeats requests, not the reading of what came back."""
    return (
        isinstance(error, IncompleteReadError | ResponseStreamingError) or code_of(error) == "RequestTimeout"
    )
