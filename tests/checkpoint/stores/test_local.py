"""What only a directory does: disks that are full, rights of files, temporary files."""

import errno
import os

import pytest

from dflash_lightning.checkpoint.stores import StoreError
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.local_errors import as_store_error


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "root")


def failing(number):
    def fail(*ignored):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (errno.EACCES, "denied", "not allowed to write /a/b (Permission denied); check its owner"),
        (errno.EROFS, "denied", "Read-only file system"),
        (errno.ENOENT, "missing", "there is no file /a/b"),
        (errno.EDQUOT, "full", "check the quota"),
        (errno.EIO, "transient", "cannot write /a/b: Input/output error"),
        (errno.EISDIR, "other", "cannot write /a/b: Is a directory"),
    ],
)
def test_each_error_of_the_file_system_has_a_kind(number, kind, text, tmp_path):
    from pathlib import Path

    error = as_store_error(OSError(number, os.strerror(number)), "write", Path("/a/b"))
    assert error.kind == kind
    assert text in str(error)


def test_a_failed_write_is_remembered_and_raised_by_finish(store, monkeypatch):
    store.put("a", b"good")
    upload = store.open_upload("a", size_hint=0)
    monkeypatch.setattr(upload, "_file", open("/dev/full", "wb", buffering=0))  # noqa: PTH123, SIM115
    with pytest.raises(StoreError, match="no space to write 4 bytes"):
        upload.write(b"data")
    assert upload.failure().kind == "full"
    with pytest.raises(StoreError, match="no space"):
        upload.finish()
    upload.abort()
    assert store.read("a") == b"good"


def test_temporary_files_are_neither_objects_nor_left_behind(store):
    upload = store.open_upload("data/a.ckpt", size_hint=0)
    (temporary,) = (store.root / "data").iterdir()
    assert temporary.name.startswith(".a.ckpt.")
    assert list(store.list("")) == []
    upload.write(b"data")
    upload.finish()
    assert [path.name for path in (store.root / "data").iterdir()] == ["a.ckpt"]


def test_folders_go_with_their_last_file_and_the_root_stays(store):
    store.put("data/step=1/rank=0.ckpt", b"")
    store.put("data/step=2/rank=0.ckpt", b"")
    store.delete(["data/step=1/rank=0.ckpt"])
    assert [path.name for path in (store.root / "data").iterdir()] == ["step=2"]
    store.delete(["data/step=2/rank=0.ckpt"])
    assert list(store.root.iterdir()) == []


def test_a_root_that_is_not_there_is_empty(store):
    assert list(store.list("")) == []
    assert store.head("a") is None
    assert store.delete(["a"]) == {}


def test_a_deletion_that_fails_is_named_and_the_others_go_on(store):
    store.put("a/file", b"")
    store.put("b", b"")
    failed = store.delete(["a", "b"])
    assert list(failed) == ["a"]
    assert store.head("b") is None
