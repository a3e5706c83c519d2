"""From what botocore raises to a StoreError that a person can act on. Nothing here asks a server.

in    the exception, and where it happened: what was done, bucket, key, endpoint
out   a kind to decide by, and a message that tells which right, bucket, key, clock or endpoint is wrong
law   the message and the kept cause hold no secret
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from botocore import exceptions as aws

from dflash_lightning.checkpoint.redact import known_secrets, redact_text
from dflash_lightning.checkpoint.stores.errors import Kind, StoreError
from dflash_lightning.checkpoint.stores.s3_codes import CLASSES, CODES, STATUSES


@dataclass(frozen=True)
class Place:
    """Where a call went, for messages."""

    action: str
    """What was to be done: "write", "read", "list", ..."""
    right: str
    """The right it needs, in the words of a bucket policy: s3:PutObject."""
    bucket: str
    key: str
    endpoint: str

    def __str__(self) -> str:
        return f"cannot {self.action} s3://{self.bucket}/{self.key} at {self.endpoint}"


class HiddenCause(Exception):
    """Stands for an exception whose text held a secret: the same class name, the same text without it."""


def code_of(error: Exception) -> str:
    """The server's word for what is wrong, "" when the error is not a server's answer."""
    response: dict[str, Any] = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def status_of(error: Exception) -> int:
    """HTTP status of a server's answer, 0 when there was none."""
    response: dict[str, Any] = getattr(error, "response", None) or {}
    return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def as_store_error(error: Exception, place: Place) -> StoreError:
    """The error to raise outside of the `except` block, so that the raw one is not dragged along."""
    kind, reason = _explain(error)
    reason = reason.format(bucket=place.bucket, key=place.key, right=place.right, endpoint=place.endpoint)
    said = "" if kind == "missing" else f" ({_said(error)})"
    secrets = known_secrets()
    failure = StoreError(redact_text(f"{place}: {reason}{said}", secrets), kind=kind)
    failure.__cause__ = _safe_cause(error)
    return failure


def _explain(error: Exception) -> tuple[Kind, str]:
    code, status = code_of(error), status_of(error)
    if code in CODES:
        return CODES[code]
    if code.startswith("KMS."):
        return "denied", "the KMS key cannot be used; check sse_kms_key_id and the key's policy"
    for classes, kind, reason in CLASSES:
        if isinstance(error, classes):
            return kind, reason
    if status in STATUSES:
        return STATUSES[status]
    if status >= 500:
        return "transient", "the server failed inside"
    return "other", "the server refused"


def _said(error: Exception) -> str:
    """The short form of the original, cut: some servers answer with a page."""
    if isinstance(error, aws.ClientError):
        message = error.response.get("Error", {}).get("Message", "")
        text = f"{status_of(error)} {code_of(error)}: {message}" if message else code_of(error)
    else:
        text = f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:300]


def _safe_cause(error: Exception) -> Exception:
    """The exception itself where nothing that it holds is secret."""
    secrets = known_secrets()
    everything = " ".join(_held_by(error))
    if redact_text(everything, secrets) == everything:
        return error
    return HiddenCause(redact_text(f"{type(error).__name__}: {error}", secrets))


def _held_by(error: BaseException) -> Iterator[str]:
    """Whatever could be printed of it and of the exceptions behind it: botocore keeps whole answers, and
    requests as they were signed, in attributes that the text does not show."""
    seen: list[BaseException] = []
    queue: list[object] = [error]
    while queue:
        one = queue.pop()
        if isinstance(one, BaseException) and not any(one is other for other in seen):
            seen.append(one)
            yield f"{one} {one!r} {vars(one)!r}"
            queue += [one.__cause__, one.__context__]
            queue += [*vars(one).values(), *getattr(one, "kwargs", {}).values()]
