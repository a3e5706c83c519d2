"""What is wrong with a place for checkpoints is said before training, and nothing is left there."""

import re

import pytest

from dflash_lightning.checkpoint.claiming.preflight import preflight
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from tests.checkpoint.over_s3 import refusal


@pytest.mark.parametrize("prefix", ["", "ck", "a/b"])
def test_a_good_place_is_left_as_it_was(prefix, tmp_path):
    for store in (FaultyStore(MemoryStore()), LocalStore(tmp_path)):
        preflight(store, prefix)
        assert list(store.list("")) == []
        assert list(store.list_uploads("")) == []


def test_every_right_of_a_run_is_used():
    store = FaultyStore(MemoryStore())
    preflight(store, "ck")
    used = {event.operation for event in store.events}
    assert used >= {"list", "put", "head", "read", "open", "write", "abort_upload", "delete", "list_uploads"}


@pytest.mark.parametrize("operation", ["list", "put", "head", "read", "open", "abort_upload", "delete"])
def test_a_right_that_is_missing_is_told_and_the_probe_goes(operation):
    store = FaultyStore(MemoryStore(), Fault(operation, kind="denied"))
    error = refusal(store)
    assert error.kind == "denied"
    assert str(error).startswith("checkpoints cannot be kept at memory://memory/ck: scripted: ")
    assert f"scripted: {operation} of" in str(error)
    assert store.store.objects == {}
    assert store.store.pending == {}


def test_a_probe_that_cannot_be_deleted_is_named():
    store = FaultyStore(MemoryStore(), Fault("delete", kind="denied", times=9))
    error = refusal(store)
    (key,) = store.store.objects
    assert str(error).endswith(f"; left behind: memory://memory/{key}")


def test_an_upload_that_cannot_be_aborted_is_named():
    faults = [Fault(name, kind="denied", times=9) for name in ("abort_upload", "abort")]
    error = refusal(FaultyStore(MemoryStore(), *faults))
    assert re.search("; left behind: the pending upload upload-1 of memory://memory/ck/probe/", str(error))


def test_what_may_have_been_written_is_named():
    store = FaultyStore(MemoryStore(), *(Fault(name, 1, times=9) for name in ("put", "head", "list_uploads")))
    assert re.search("; left behind: .*/probe/.*, if it was written", str(refusal(store)))


def test_without_the_right_to_list_uploads_a_run_may_start(caplog):
    preflight(FaultyStore(MemoryStore(), Fault("list_uploads", kind="denied")), "ck")
    assert "lifecycle rule AbortIncompleteMultipartUpload" in caplog.text


@pytest.mark.parametrize("operation", ["put", "read"])
def test_bytes_that_change_are_told(operation):
    store = FaultyStore(MemoryStore(), Fault(operation, does="rot"))
    assert "what is read is not what was written" in str(refusal(store))


def test_a_directory_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot" in str(refusal(LocalStore(tmp_path / "file")))
