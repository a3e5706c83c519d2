"""The data of a checkpoint: written, finished and verified, or gone again.

in    a store, a key below the prefix, a function that writes the state into a file
out   size and checksums of what is stored, or the StoreError behind the failure
law   after a failure nothing is left at the key, if that can be
"""

from collections.abc import Callable
from contextlib import suppress

from dflash_lightning.checkpoint.manifest import DataFile
from dflash_lightning.checkpoint.publishing.measured import MeasuredFile
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.protocol import ObjectStore, Upload
from dflash_lightning.checkpoint.verify import check_stored

Write = Callable[[MeasuredFile], None]


def upload_data(
    store: ObjectStore,
    prefix: str,
    key: str,
    write: Write,
    *,
    size_hint: int = 0,
) -> DataFile:
    """Write, finish and verify one object; `key` is below the prefix. After a failure nothing is left."""
    full = join_key(prefix, key)
    upload = store.open_upload(full, size_hint=size_hint)
    file = MeasuredFile(upload)
    try:
        _written(write, file, upload)
    except BaseException:
        upload.abort()
        raise
    measured = file.measured(key)
    try:
        upload.finish()
        check_stored(store, prefix, measured)
    except BaseException:
        upload.abort()
        withdraw(store, prefix, measured)  # it may have been finished, with the answer lost
        raise
    return measured


def withdraw(store: ObjectStore, prefix: str, file: DataFile) -> None:
    """What cannot be deleted now is found later by its age."""
    with suppress(StoreError):
        store.quick().delete([join_key(prefix, file.key)])


def _written(write: Write, file: MeasuredFile, upload: Upload) -> None:
    try:
        write(file)
    except Exception as error:
        failure = upload.failure()  # torch.save hides it behind an error of its own
        if failure is None or failure is error:
            raise
        raise failure from error
