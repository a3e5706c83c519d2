"""What the network and the server do to S3Store, through a proxy that does it on demand (spec table 4)."""

import os
import time
import zlib

import pytest

from dflash_lightning.checkpoint.stores import StoreError, open_store, s3_answers
from dflash_lightning.checkpoint.stores.settings import SMALLEST_PART
from tests.checkpoint.over_s3 import LARGE, fails, upload_to

pytestmark = pytest.mark.slow


def test_a_server_that_hangs_is_given_up(proxy, s3_uri, errors):
    store, prefix = open_store(s3_uri, proxy.settings(read_timeout_s=0.5, max_attempts=1))
    proxy.add("hang", times=None, seconds=5.0)
    started = time.monotonic()
    said = fails(lambda: store.read(f"{prefix}/a"), errors, "transient")
    assert "fell silent" in said
    assert time.monotonic() - started < 20


def test_an_answer_that_breaks_off_is_read_again(proxy, proxied):
    store, prefix = proxied
    store.put(f"{prefix}/a", b"data" * 100)
    proxy.add("cut", method="GET", times=2)
    assert store.read(f"{prefix}/a") == b"data" * 100
    assert store.read(f"{prefix}/a", 4, 8) == b"data"


def test_a_put_whose_answer_is_lost_is_not_a_conflict_with_itself(proxy, proxied, errors):
    store, prefix = proxied
    proxy.add("lose", method="PUT")
    store.put(f"{prefix}/owner.json", b"mine", only_if_absent=True)
    assert proxy.count("PUT") == 2
    fails(lambda: store.put(f"{prefix}/owner.json", b"yours", only_if_absent=True), errors, "conflict")
    fails(lambda: store.put(f"{prefix}/owner.json", b"other", only_if_absent=True), errors, "conflict")


@pytest.mark.parametrize("then", ["NoSuchUpload", "SlowDown"])
def test_a_complete_whose_answer_is_lost_is_looked_up(proxy, proxied, direct, then, caplog):
    """S3 may have forgotten the upload by the second attempt, or answer nothing useful for a while."""
    store, prefix = proxied
    proxy.add("lose", method="POST", query="uploadId=")
    status = 404 if then == "NoSuchUpload" else 503
    proxy.add("answer", method="POST", query="uploadId=", status=status, code=then, times=None)
    facts = upload_to(store, f"{prefix}/a")
    assert facts.size == len(LARGE)
    assert direct.read(f"{prefix}/a") == LARGE
    assert "the answer was lost, but" in caplog.text


def test_a_complete_that_never_happened_is_an_error_even_where_an_older_object_is_there(
    proxy, proxied, direct, errors
):
    store, prefix = proxied
    direct.put(f"{prefix}/a", os.urandom(len(LARGE)))  # of the same length
    proxy.add("answer", method="POST", query="uploadId=", status=404, code="NoSuchUpload", times=None)
    fails(lambda: upload_to(store, f"{prefix}/a"), errors, "transient")


def test_a_part_that_fails_ends_the_upload_with_its_cause(proxy, s3_uri, errors):
    torch = pytest.importorskip("torch")
    store, prefix = open_store(s3_uri, proxy.settings(max_attempts=1))
    proxy.add("answer", method="PUT", status=403, code="AccessDenied", times=None)
    upload = store.open_upload(f"{prefix}/a", size_hint=0)
    with pytest.raises((StoreError, RuntimeError)):
        torch.save({"weight": torch.zeros(12 * SMALLEST_PART // 4)}, upload)
    assert upload.failure().kind == "denied"
    assert "s3:PutObject" in str(upload.failure())
    fails(upload.finish, errors, "denied")
    upload.abort()
    assert list(store.list_uploads(prefix)) == []


def test_deletions_are_checked_key_by_key_and_done_singly_where_bulk_is_refused(proxy, proxied, direct):
    store, prefix = proxied
    names = [f"{prefix}/{n}" for n in range(3)]
    for name in names:
        store.put(name, b"")
    proxy.add("answer", method="POST", query="delete", status=400, code="MissingContentMD5", times=None)
    assert store.delete(names) == {}
    assert list(direct.list(prefix)) == []
    assert proxy.count("DELETE") == 3


def test_servers_without_whole_checksums_are_served(proxy, proxied, direct):
    store, prefix = proxied
    proxy.add("answer", method="POST", query="uploads", status=501, code="NotImplemented")
    facts = upload_to(store, f"{prefix}/a")
    assert int(facts.crc32, 16) == zlib.crc32(LARGE)
    assert direct.read(f"{prefix}/a") == LARGE


def test_checksums_can_be_turned_off(proxy, s3_uri, direct):
    store, prefix = open_store(s3_uri, proxy.settings(checksums=False))
    store.put(f"{prefix}/small", b"data")
    upload_to(store, f"{prefix}/a")
    assert direct.read(f"{prefix}/a") == LARGE


def test_listings_of_more_than_a_page_are_complete(proxy, proxied, monkeypatch):
    store, prefix = proxied
    monkeypatch.setattr(s3_answers, "PAGE_ENTRIES", 3)
    names = [f"{prefix}/manifests/{n:02d}" for n in range(10)]
    for name in names:
        store.put(name, b"")
    before = proxy.count("GET")
    assert [facts.key for facts in store.list(f"{prefix}/manifests/")] == names
    assert proxy.count("GET") - before >= 4
    assert store.delete(names) == {}
    assert list(store.list(prefix)) == []


def test_head_of_a_missing_object_without_the_right_to_list(proxy, proxied, errors):
    """S3 answers 403 to HEAD then, for missing objects as well: only GET tells."""
    store, prefix = proxied
    proxy.add("answer", method="HEAD", status=403, code="", times=None)
    assert store.head(f"{prefix}/missing") is None
    store.put(f"{prefix}/a", b"data")
    assert store.head(f"{prefix}/a").size == 4
    proxy.add("answer", method="GET", status=403, code="AccessDenied", times=None)
    assert "s3:GetObject" in fails(lambda: store.head(f"{prefix}/a"), errors, "denied")


def test_a_server_that_is_killed_loses_nothing_and_comes_back(weed, s3_env, s3_uri, errors):
    store, prefix = open_store(s3_uri, weed.settings(max_attempts=1, connect_timeout_s=1.0))
    upload_to(store, f"{prefix}/before")
    weed.kill()
    said = fails(lambda: store.put(f"{prefix}/during", b"data"), errors, "endpoint")
    assert "nothing answers at" in said
    weed.start()
    assert store.read(f"{prefix}/before") == LARGE
    store.put(f"{prefix}/after", b"data")
