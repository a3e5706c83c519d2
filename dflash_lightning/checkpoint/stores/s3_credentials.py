"""Credentials from the AWS chain, where botocore lets some failures through as they are.

in    a function of botocore that reads them: at the start, and again when they are about to expire
out   what it returns, or one of botocore's own errors
law   what a process printed is in no error: it may be half of a secret
"""

from collections.abc import Callable
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError

T = TypeVar("T")


def load_credentials(read: Callable[[], T]) -> T:
    """Raises: CredentialRetrievalError for a credential_process that is missing or printed nothing, half a
    line, no date; what botocore explains by itself, as it is."""
    try:
        return read()
    except (BotoCoreError, ClientError):
        raise
    except Exception as error:  # of the process, of JSON, of a date: there is no common class
        said = f"{type(error).__name__}: {error}"
    # Outside, without the error behind it: one of JSON keeps the whole text.
    raise CredentialRetrievalError(provider="the AWS chain", error_msg=said)
