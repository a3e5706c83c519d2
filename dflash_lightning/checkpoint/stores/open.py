"""From an address to a store: s3://bucket/prefix, a path or file:// address, memory://name/prefix.

out   the store and the prefix below which the caller keeps its keys ("" where the address names none)
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from dflash_lightning.checkpoint.stores.keys import require_key
from dflash_lightning.checkpoint.stores.memory import named_store
from dflash_lightning.checkpoint.stores.protocol import ObjectStore
from dflash_lightning.checkpoint.stores.settings import StoreSettings


def open_store(uri: str, settings: StoreSettings) -> tuple[ObjectStore, str]:
    """Nothing is asked of the store yet. A directory need not exist; its prefix is always "".

    Raises: ValueError for an address that is none.
    """
    if "://" not in uri and not uri.startswith(("s3:", "memory:", "file:")):
        return _directory(uri), ""
    parts = urlsplit(uri)
    if parts.username is not None or parts.query or parts.fragment:
        # The address is not repeated: such parts hold secrets.
        raise ValueError(
            "a checkpoint address holds no login, query or fragment: write s3://bucket/prefix, "
            "and put credentials into the AWS chain"
        )
    if parts.scheme == "file" and not parts.netloc:
        return _directory(unquote(parts.path)), ""
    if parts.scheme not in ("s3", "memory") or not parts.netloc:
        raise ValueError(
            f"{uri!r} is no checkpoint address: write s3://bucket/prefix or the path of a folder"
        )
    prefix = parts.path.strip("/")
    if prefix:
        require_key(prefix)
    if parts.scheme == "memory":
        return named_store(parts.netloc), prefix
    from dflash_lightning.checkpoint.stores.s3 import S3Store  # boto3 takes half a second; not for folders

    return S3Store(parts.netloc, settings), prefix


def _directory(path: str) -> ObjectStore:
    from dflash_lightning.checkpoint.stores.local import LocalStore

    return LocalStore(Path(path).expanduser().absolute())
