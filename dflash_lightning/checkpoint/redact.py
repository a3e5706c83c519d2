"""Text without secrets, and loggers that cannot give them away.

in    any text; values known to be secret
out   the same text with `***` in place of logins in addresses, signed queries, Authorization headers,
      signatures, session tokens, access key ids and the known values
law   text without secrets is untouched, and hiding twice changes nothing
"""

import logging
import re
from collections.abc import Iterable
from typing import Final

HIDDEN = "***"
_LIBRARIES = ("botocore", "boto3", "urllib3", "s3transfer")
_SHORT = 4
"""Known values shorter than this are not looked for: they would hit words."""
_VALUE = r"[^&\s'\",;)}\]<]+"
_NAMES = (
    r"(?:x-amz-(?:signature|credential|security-token)|aws_?access_?key_?id|aws_?secret_?access_?key|"
    r"access_?key_?id|secret_?access_?key|aws_?session_?token|session_?token|security_?token|secret_?key|"
    r"signature|credential|password|sig)"
)
_PATTERNS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"(?<=://)[^/@\s'\"]+(?=@)"), HIDDEN),
    # The whole rest of such a header is one value: scheme, credential, signature.
    (re.compile(r"(authorization\\?['\"]?\s*[:=]\s*)b?\\?['\"]?(?!\*\*\*)[^'\"\r\n]+", re.I), rf"\1{HIDDEN}"),
    (re.compile(rf"({_NAMES}\\?['\"]?\s*[:=]\s*)b?\\?['\"]?(?!\*\*\*){_VALUE}", re.I), rf"\1{HIDDEN}"),
    (re.compile(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9_]{8,}"), HIDDEN),
)


def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` fit for a log, an exception or a file that others read.

    Example: redact_text("GET http://me:pw@host/?X-Amz-Signature=ab") is
    "GET http://***@host/?X-Amz-Signature=***".
    """
    for secret in sorted(secrets, key=len, reverse=True):  # else a part of a longer one hides first
        if len(secret) >= _SHORT:
            text = text.replace(secret, HIDDEN)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


class RedactingFilter(logging.Filter):
    """Hides secrets in a record: its text, its arguments and its traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redact_text(record.getMessage(), self.secrets), None
        if record.exc_info and record.exc_info[0] is not None:
            # Formatters print this text instead of formatting the exception again.
            text = logging.Formatter().formatException(record.exc_info)
            record.exc_text, record.exc_info = redact_text(text, self.secrets), None
        return True


_filter = RedactingFilter()


def known_secrets() -> frozenset[str]:
    """The values handed to `protect` in this process."""
    return frozenset(_filter.secrets)


def protect(secrets: Iterable[str]) -> None:
    """Keep these values out of every error text of the stores, and out of what the storage libraries log."""
    _filter.secrets.update(secret for secret in secrets if secret)


def quiet_libraries() -> None:
    """Keep the storage libraries at WARNING, unless their level was set on purpose, and hide secrets anyhow.

    Their DEBUG text holds access key ids, signatures and session tokens. The filter goes on every logger they
    have made so far, since those of children do not pass their parent's.
    """
    for library in _LIBRARIES:
        root = logging.getLogger(library)
        if root.level == logging.NOTSET:
            root.setLevel(logging.WARNING)
        for name in (library, *_children(library)):
            logger = logging.getLogger(name)
            if _filter not in logger.filters:
                logger.addFilter(_filter)


def _children(library: str) -> list[str]:
    return [name for name in list(logging.root.manager.loggerDict) if name.startswith(f"{library}.")]
