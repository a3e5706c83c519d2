"""Case 19: what is wrong with a place for checkpoints is said before training, and nothing is left there."""

import re
import time

import pytest

from dflash_lightning.checkpoint.preflight import preflight
from dflash_lightning.checkpoint.stores import StoreError, StoreSettings, open_store
from dflash_lightning.checkpoint.stores.fault_script import Fault
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore


def refusal(store, prefix="ck"):
    """The error of a preflight, and how long it took."""
    started = time.monotonic()
    with pytest.raises(StoreError) as caught:
        preflight(store, prefix)
    assert time.monotonic() - started < 60  # "within seconds", on a machine that may be busy
    return caught.value


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


@pytest.mark.slow
class TestServer:
    """Against SeaweedFS: the answers are real."""

    def test_a_good_bucket(self, weed, s3_settings, s3_uri):
        store, prefix = open_store(s3_uri, s3_settings)
        preflight(store, prefix)
        assert list(store.list(prefix)) == []
        assert list(store.list_uploads(prefix)) == []

    def test_an_identity_that_may_only_read(self, weed, s3_env, monkeypatch, s3_settings):
        for name, value in weed.reader_environment.items():
            monkeypatch.setenv(name, value)
        error = refusal(open_store("s3://train/readonly", s3_settings)[0], "readonly")
        assert error.kind == "denied"
        assert "these credentials lack the right s3:PutObject" in str(error)
        assert "403 AccessDenied" in str(error)
        assert "left behind" not in str(error)

    def test_a_bucket_that_is_not_there(self, s3_settings):
        error = refusal(open_store("s3://nowhere/ck", s3_settings)[0])
        assert error.kind == "missing"
        assert "there is no bucket nowhere at http://127.0.0.1" in str(error)

    def test_a_wrong_secret_key(self, s3_env, monkeypatch, s3_settings):
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong" * 8)
        error = refusal(open_store("s3://train/ck", s3_settings)[0])
        assert error.kind == "credentials"
        assert "the secret key does not belong to the access key" in str(error)

    def test_an_unknown_access_key(self, s3_env, monkeypatch, s3_settings):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN0000000")
        error = refusal(open_store("s3://train/ck", s3_settings)[0])
        assert error.kind == "credentials"
        assert "the server does not know this access key" in str(error)
        assert "AKIAUNKNOWN0000000" not in str(error)

    def test_no_credentials(self, s3_env, monkeypatch, s3_settings):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        error = refusal(open_store("s3://train/ck", s3_settings)[0])
        assert error.kind == "credentials"
        assert "there are no credentials; set AWS_ACCESS_KEY_ID" in str(error)

    def test_an_unknown_profile(self, s3_env, s3_settings):
        from dataclasses import replace

        error = refusal(open_store("s3://train/ck", replace(s3_settings, profile="nobody"))[0])
        assert error.kind == "credentials"
        assert "check the profile" in str(error)

    def test_an_endpoint_where_nothing_listens(self, s3_env):
        settings = StoreSettings(endpoint_url="http://127.0.0.1:9", path_style=True)
        error = refusal(open_store("s3://train/ck", settings)[0])
        assert error.kind == "endpoint"
        assert "nothing answers at http://127.0.0.1:9; check endpoint_url" in str(error)

    def test_case_22_a_clock_that_is_wrong(self, proxy):
        proxy.add("answer", status=403, code="RequestTimeTooSkewed", times=None)
        error = refusal(open_store("s3://train/ck", proxy.settings())[0])
        assert error.kind == "clock"
        assert "set the clock (NTP)" in str(error)
