"""Which keys are accepted, by every store alike.

law   a key accepted here stays below its store's root, and means the same on a disk and in a bucket
"""


def require_key(key: str) -> None:
    """Raises ValueError for a key that a directory and a bucket would not understand alike."""
    parts = key.split("/")
    if not all(parts) or {".", ".."} & set(parts) or not key.isprintable() or "\\" in key:
        raise ValueError(
            f"key {key!r} is not usable: parts between single '/', none of them '.' or '..', no '/' at "
            "either end, no backslash, printable characters"
        )
    if len(key.encode()) > 1024:
        raise ValueError(
            f"key {key[:60]!r}... has {len(key.encode())} bytes, S3 allows 1024; shorten the prefix"
        )


def join_key(prefix: str, name: str) -> str:
    """`prefix/name`, or the name alone where the prefix is empty."""
    return f"{prefix}/{name}" if prefix else name
