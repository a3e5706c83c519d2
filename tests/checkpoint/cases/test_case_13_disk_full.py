"""Case 13: a full disk never costs the last good file; the error names path and bytes."""

import errno
import os

import pytest

from dflash_lightning.checkpoint.resuming import download
from dflash_lightning.checkpoint.stores import StoreError
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.writing.events import Failed
from tests.checkpoint.resuming.test_fetch import files, get, reads, stored
from tests.checkpoint.writing.writers import (
    events_until,
    folder_target,
    job,
    make_writer,
    state_at,
    stored_steps,
)


def full(*ignored):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_case_13_a_write_names_path_and_bytes_and_the_good_file_stays(tmp_path, monkeypatch):
    store = LocalStore(tmp_path / "root")
    store.put("last.ckpt", b"good")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError) as caught:
        store.put("last.ckpt", b"x" * 5000)
    assert caught.value.kind == "full"
    assert f"no space to write 5,000 bytes at {store.root}/last.ckpt: " in str(caught.value)
    assert f"bytes are free in {store.root}; free some, keep fewer checkpoints" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert store.read("last.ckpt") == b"good"
    assert [path.name for path in store.root.iterdir()] == ["last.ckpt"]


def test_case_13_a_download_is_one_message_and_leaves_nothing(tmp_path, monkeypatch):
    store = stored()
    monkeypatch.setattr(download.os, "posix_fallocate", full)
    message = r"no space to write 3,000 bytes at .*step=8-.* bytes are free"
    with pytest.raises(StoreError, match=message) as caught:
        get(tmp_path)
    assert caught.value.kind == "full"
    assert files(tmp_path) == []
    assert reads(store) == []  # known before the download


def test_case_13_a_run_goes_on_and_stores_its_newest_when_there_is_room_again(
    quick_retries, tmp_path, monkeypatch
):
    writer = make_writer(folder_target(tmp_path))
    writer.submit(job(1), state_at(1))
    assert writer.flush(30.0) == []
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        writer.submit(job(2), state_at(2))
        missed = next(event for event in events_until(writer, Failed) if isinstance(event, Failed))
        assert (missed.kind, missed.will_retry) == ("full", True)
        assert f"at {tmp_path}/data/step=2-" in missed.message
        assert stored_steps(tmp_path) == [1]  # whole
    assert writer.flush(30.0) == []
    writer.close()
    assert stored_steps(tmp_path) == [1, 2]
    assert list(tmp_path.rglob(".*.pending")) == []
