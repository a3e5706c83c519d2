"""What the network and the server do to S3Store, through a proxy that does it on demand (spec table 4)."""

import logging
import os
import time
import zlib

import pytest

from dflash_lightning.checkpoint.stores import StoreError, open_store, s3_answers
from dflash_lightning.checkpoint.stores.settings import SMALLEST_PART
from tests.s3.no_secrets import assert_no_secret, texts_of

pytestmark = pytest.mark.slow
LARGE = os.urandom(SMALLEST_PART) + b"and a second part"


@pytest.fixture
def errors():
    """Add every StoreError that a test sees: each is looked through for secrets at its end."""
    return []


@pytest.fixture(autouse=True)
def _nothing_secret_is_said(weed, caplog, errors):
    """Case 20, for every test here."""
    caplog.set_level(logging.DEBUG)
    yield
    assert_no_secret([caplog.text, *(text for error in errors for text in texts_of(error))], weed.secrets)


@pytest.fixture
def store(proxy, s3_uri):
    """(store, prefix) through the proxy."""
    return open_store(s3_uri, proxy.settings())


@pytest.fixture
def direct(weed, s3_env):
    """The same bucket without the proxy."""
    return open_store(f"s3://{weed.bucket}", weed.settings())[0]


def fails(call, errors, kind):
    with pytest.raises(StoreError) as caught:
        call()
    errors.append(caught.value)
    assert caught.value.kind == kind
    return str(caught.value)


def save(store, key, data=LARGE):
    upload = store.open_upload(key, size_hint=len(data))
    try:
        upload.write(data)
        return upload.finish()
    except StoreError:
        upload.abort()
        raise


def test_case_10_a_busy_server_is_asked_again(proxy, store, direct):
    store, prefix = store
    proxy.add("answer", method="PUT", times=2)
    store.put(f"{prefix}/a", b"data")
    assert direct.read(f"{prefix}/a") == b"data"
    assert proxy.count("PUT") == 3


def test_case_10_the_number_of_attempts_is_bounded(proxy, s3_uri, errors):
    store, prefix = open_store(s3_uri, proxy.settings(max_attempts=3))
    proxy.add("answer", times=None)
    said = fails(lambda: store.put(f"{prefix}/a", b"data"), errors, "transient")
    assert f"cannot write {s3_uri}/a at http://127.0.0.1" in said
    assert "asks to slow down" in said
    assert proxy.count("PUT") == 3


def test_a_server_that_hangs_is_given_up(proxy, s3_uri, errors):
    store, prefix = open_store(s3_uri, proxy.settings(read_timeout_s=0.5, max_attempts=1))
    proxy.add("hang", times=None, seconds=5.0)
    started = time.monotonic()
    said = fails(lambda: store.read(f"{prefix}/a"), errors, "transient")
    assert "fell silent" in said
    assert time.monotonic() - started < 20


def test_case_12_a_bit_that_changes_on_the_way_up_is_sent_again(proxy, store, direct):
    store, prefix = store
    put = proxy.add("flip_up", method="PUT", path="/small")
    part = proxy.add("flip_up", method="PUT", path="/large")
    store.put(f"{prefix}/small", b"data" * 100)
    facts = save(store, f"{prefix}/large")
    assert (put.seen, part.seen) == (1, 1)
    assert direct.read(f"{prefix}/small") == b"data" * 100
    assert zlib.crc32(direct.read(f"{prefix}/large")) == int(facts.crc32, 16) == zlib.crc32(LARGE)


def test_case_12_bits_that_keep_changing_are_an_error(proxy, store, direct, errors):
    store, prefix = store
    proxy.add("flip_up", method="PUT", times=None)
    assert "bytes changed on their way" in fails(
        lambda: store.put(f"{prefix}/a", b"x" * 99), errors, "corrupt"
    )
    fails(lambda: save(store, f"{prefix}/b"), errors, "corrupt")
    assert list(direct.list(prefix)) == []
    assert list(direct.list_uploads(prefix)) == []


def test_case_12_a_whole_object_that_changes_on_the_way_down_is_read_again(proxy, store, errors):
    store, prefix = store
    store.put(f"{prefix}/a", b"data" * 100)
    save(store, f"{prefix}/large")
    proxy.add("flip_down", method="GET", times=2)
    assert store.read(f"{prefix}/a") == b"data" * 100
    assert store.read(f"{prefix}/large") == LARGE
    proxy.add("flip_down", method="GET", times=None)
    fails(lambda: store.read(f"{prefix}/a"), errors, "corrupt")
    fails(lambda: store.read(f"{prefix}/large"), errors, "corrupt")


def test_an_answer_that_breaks_off_is_read_again(proxy, store):
    store, prefix = store
    store.put(f"{prefix}/a", b"data" * 100)
    proxy.add("cut", method="GET", times=2)
    assert store.read(f"{prefix}/a") == b"data" * 100
    assert store.read(f"{prefix}/a", 4, 8) == b"data"


def test_a_put_whose_answer_is_lost_is_not_a_conflict_with_itself(proxy, store, errors):
    store, prefix = store
    proxy.add("lose", method="PUT")
    store.put(f"{prefix}/owner.json", b"mine", only_if_absent=True)
    assert proxy.count("PUT") == 2
    fails(lambda: store.put(f"{prefix}/owner.json", b"yours", only_if_absent=True), errors, "conflict")
    fails(lambda: store.put(f"{prefix}/owner.json", b"other", only_if_absent=True), errors, "conflict")


@pytest.mark.parametrize("then", ["NoSuchUpload", "SlowDown"])
def test_a_complete_whose_answer_is_lost_is_looked_up(proxy, store, direct, then, caplog):
    """S3 may have forgotten the upload by the second attempt, or answer nothing useful for a while."""
    store, prefix = store
    proxy.add("lose", method="POST", query="uploadId=")
    status = 404 if then == "NoSuchUpload" else 503
    proxy.add("answer", method="POST", query="uploadId=", status=status, code=then, times=None)
    facts = save(store, f"{prefix}/a")
    assert facts.size == len(LARGE)
    assert direct.read(f"{prefix}/a") == LARGE
    assert "the answer was lost, but" in caplog.text


def test_a_complete_that_never_happened_is_an_error_even_where_an_older_object_is_there(
    proxy, store, direct, errors
):
    store, prefix = store
    direct.put(f"{prefix}/a", os.urandom(len(LARGE)))  # of the same length
    proxy.add("answer", method="POST", query="uploadId=", status=404, code="NoSuchUpload", times=None)
    fails(lambda: save(store, f"{prefix}/a"), errors, "missing")


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


def test_case_9_credentials_that_expire_are_read_anew(
    proxy, store, direct, weed, tmp_path, monkeypatch, errors
):
    """The file that the session was made from holds new ones by then."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    old, new = weed.reader_environment, weed.environment
    file.write_text(as_profile(old))
    store, prefix = store
    proxy.expire(old["AWS_ACCESS_KEY_ID"])
    said = fails(lambda: store.put(f"{prefix}/a", b"data"), errors, "credentials")
    assert "expired" in said
    file.write_text(as_profile(new))
    store.put(f"{prefix}/a", b"data")
    assert store.read(f"{prefix}/a") == b"data"


def test_case_9_an_upload_goes_on_with_the_new_credentials(proxy, store, weed, tmp_path, monkeypatch):
    file = tmp_path / "credentials"
    file.write_text(as_profile(weed.environment))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    store, prefix = store
    upload = store.open_upload(f"{prefix}/a", size_hint=len(LARGE))
    proxy.add("answer", method="PUT", status=400, code="ExpiredToken", times=2)  # both parts at once
    upload.write(LARGE)
    assert upload.finish().size == len(LARGE)


def as_profile(environment):
    return (
        f"[default]\naws_access_key_id={environment['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key={environment['AWS_SECRET_ACCESS_KEY']}\n"
    )


def test_deletions_are_checked_key_by_key_and_done_singly_where_bulk_is_refused(proxy, store, direct):
    store, prefix = store
    names = [f"{prefix}/{n}" for n in range(3)]
    for name in names:
        store.put(name, b"")
    proxy.add("answer", method="POST", query="delete", status=400, code="MissingContentMD5", times=None)
    assert store.delete(names) == {}
    assert list(direct.list(prefix)) == []
    assert proxy.count("DELETE") == 3


def test_servers_without_whole_checksums_are_served(proxy, store, direct):
    store, prefix = store
    proxy.add("answer", method="POST", query="uploads", status=501, code="NotImplemented")
    facts = save(store, f"{prefix}/a")
    assert int(facts.crc32, 16) == zlib.crc32(LARGE)
    assert direct.read(f"{prefix}/a") == LARGE


def test_checksums_can_be_turned_off(proxy, s3_uri, direct):
    store, prefix = open_store(s3_uri, proxy.settings(checksums=False))
    store.put(f"{prefix}/small", b"data")
    save(store, f"{prefix}/a")
    assert direct.read(f"{prefix}/a") == LARGE


def test_listings_of_more_than_a_page_are_complete(proxy, store, monkeypatch):
    store, prefix = store
    monkeypatch.setattr(s3_answers, "PAGE_ENTRIES", 3)
    names = [f"{prefix}/manifests/{n:02d}" for n in range(10)]
    for name in names:
        store.put(name, b"")
    before = proxy.count("GET")
    assert [facts.key for facts in store.list(f"{prefix}/manifests/")] == names
    assert proxy.count("GET") - before >= 4
    assert store.delete(names) == {}
    assert list(store.list(prefix)) == []


def test_head_of_a_missing_object_without_the_right_to_list(proxy, store, errors):
    """S3 answers 403 to HEAD then, for missing objects as well: only GET tells."""
    store, prefix = store
    proxy.add("answer", method="HEAD", status=403, code="", times=None)
    assert store.head(f"{prefix}/missing") is None
    store.put(f"{prefix}/a", b"data")
    assert store.head(f"{prefix}/a").size == 4
    proxy.add("answer", method="GET", status=403, code="AccessDenied", times=None)
    assert "s3:GetObject" in fails(lambda: store.head(f"{prefix}/a"), errors, "denied")


def test_case_2_what_a_killed_upload_leaves_is_listed_and_freed(weed, s3_env, s3_uri, errors):
    store, prefix = open_store(s3_uri, weed.settings())
    upload = store.open_upload(f"{prefix}/a", size_hint=0)
    upload.write(LARGE)
    (left,) = store.list_uploads(prefix)
    assert left.key == f"{prefix}/a"
    store.abort_upload(left)
    assert list(store.list_uploads(prefix)) == []
    upload.abort()


def test_a_server_that_is_killed_loses_nothing_and_comes_back(weed, s3_env, s3_uri, errors):
    store, prefix = open_store(s3_uri, weed.settings(max_attempts=1, connect_timeout_s=1.0))
    save(store, f"{prefix}/before")
    weed.kill()
    said = fails(lambda: store.put(f"{prefix}/during", b"data"), errors, "endpoint")
    assert "nothing answers at" in said
    weed.start()
    assert store.read(f"{prefix}/before") == LARGE
    store.put(f"{prefix}/after", b"data")
