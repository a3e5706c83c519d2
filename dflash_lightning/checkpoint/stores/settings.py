"""How to reach a store, as it stands in YAML. No secrets: those come from the usual AWS chain only."""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

MIB = 1 << 20
SMALLEST_PART = 5 * MIB
"""S3 refuses smaller parts, except for the last one of an object."""


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """Raises ValueError for settings that no server could accept."""

    endpoint_url: str | None = None
    """Address of the S3 server, such as https://s3.example.org:9000; null: AWS, or AWS_ENDPOINT_URL."""
    region: str | None = None
    """AWS region; null: from the environment or profile."""
    profile: str | None = None
    """Profile in ~/.aws/config; null: the usual chain (environment, files, role of the machine)."""
    path_style: bool = False
    """Bucket in the path instead of the host name; most servers other than AWS want true."""
    sse: Literal["AES256", "aws:kms"] | None = None
    """Server-side encryption of what is written; null: as the bucket is set up."""
    sse_kms_key_id: str | None = None
    """KMS key for sse: aws:kms."""
    connect_timeout_s: float = 10.0
    """Seconds to wait for a connection."""
    read_timeout_s: float = 60.0
    """Seconds to wait for the next bytes of an answer."""
    max_attempts: int = 10
    """Attempts of one request, the first included, with growing pauses in between."""
    retry_mode: Literal["standard", "adaptive"] = "standard"
    """adaptive also slows all requests down while the server throttles."""
    part_bytes: int = 16 * MIB
    """Bytes per part of an upload; larger where an object would have more than 9,000 of them."""
    upload_threads: int = 4
    """Parts on their way at once; memory is (upload_threads + 2) * part_bytes."""
    checksums: bool = True
    """Let the server verify crc32 checksums. False only for servers that refuse correct ones."""

    def __post_init__(self) -> None:
        if self.endpoint_url is not None:
            _require_address(self.endpoint_url)
        for name in ("connect_timeout_s", "read_timeout_s", "max_attempts", "upload_threads"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        if self.part_bytes < SMALLEST_PART:
            raise ValueError(f"part_bytes is {self.part_bytes}, but S3 accepts {SMALLEST_PART} and more")
        if self.sse_kms_key_id is not None and self.sse != "aws:kms":
            raise ValueError(f"sse_kms_key_id needs sse: aws:kms, got sse: {self.sse}")


def _require_address(url: str) -> None:
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None or parts.query:
        # The value is not repeated: it holds a secret.
        raise ValueError(
            "endpoint_url must not hold a login or a query; put credentials into the AWS chain "
            "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile)"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"endpoint_url must look like https://host or http://host:port, got {url!r}")
