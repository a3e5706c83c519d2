"""What a store says when it cannot do what was asked: one error class, a kind to decide by, a text to read.

law   a message never holds a secret, a signature, a token or an access key id; the cause is kept
"""

from typing import Any, Literal

Kind = Literal[
    "missing",  # bucket or object is not there
    "denied",  # the identity lacks a right
    "transient",  # throttled, timed out, failed inside: worth trying again
    "corrupt",  # a checksum or a length is not what it should be
    "conflict",  # something else is there already
    "clock",  # this machine's clock is too far off for signatures
    "endpoint",  # nothing answers at the address
    "credentials",  # none, wrong or expired
    "full",  # no space left
    "other",
]
RETRYABLE: frozenset[Kind] = frozenset({"transient", "corrupt", "endpoint"})
"""Kinds that may pass by themselves: an outage ends, a flipped bit is sent once more."""


class StoreError(RuntimeError):
    """Names bucket or path, key, and the way out. Survives pickling, without its cause."""

    def __init__(self, message: str, *, kind: Kind) -> None:
        super().__init__(message)
        self.kind: Kind = kind

    @property
    def retryable(self) -> bool:
        return self.kind in RETRYABLE

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (str(self), self.kind)


def _rebuild(message: str, kind: Kind) -> StoreError:
    return StoreError(message, kind=kind)
