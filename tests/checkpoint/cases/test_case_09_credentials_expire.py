"""Case 9: credentials that expire during a run are read anew; those that stay wrong are a clear error."""

import pytest

from dflash_lightning.checkpoint.writing.events import Durable, Failed
from tests.checkpoint.over_s3 import LARGE, as_profile, fails, stored_step, writer_to
from tests.checkpoint.writing.writers import events_until, job, state_at

pytestmark = pytest.mark.slow


def test_case_09_credentials_that_expire_are_read_anew(
    proxy, proxied, direct, weed, tmp_path, monkeypatch, errors
):
    """The file that the session was made from holds new ones by then."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    old, new = weed.reader_environment, weed.environment
    file.write_text(as_profile(old))
    store, prefix = proxied
    proxy.expire(old["AWS_ACCESS_KEY_ID"])
    said = fails(lambda: store.put(f"{prefix}/a", b"data"), errors, "credentials")
    assert "expired" in said
    file.write_text(as_profile(new))
    store.put(f"{prefix}/a", b"data")
    assert store.read(f"{prefix}/a") == b"data"


def test_case_09_an_upload_goes_on_with_the_new_credentials(proxy, proxied, weed, tmp_path, monkeypatch):
    file = tmp_path / "credentials"
    file.write_text(as_profile(weed.environment))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    store, prefix = proxied
    upload = store.open_upload(f"{prefix}/a", size_hint=len(LARGE))
    proxy.add("answer", method="PUT", status=400, code="ExpiredToken", times=2)  # both parts at once
    upload.write(LARGE)
    assert upload.finish().size == len(LARGE)


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("shared", [False, True], ids=["thread", "process"])
def test_case_09_a_run_goes_on_when_new_credentials_come(
    shared, proxy, weed, s3_uri, s3_settings, tmp_path, monkeypatch
):
    file = tmp_path / "credentials"
    file.write_text(as_profile(weed.reader_environment))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    proxy.expire(weed.reader_environment["AWS_ACCESS_KEY_ID"])
    writer = writer_to(s3_uri, proxy.settings(), shared=shared)
    writer.submit(job(1), state_at(1))
    missed = events_until(writer, Failed)[0]
    assert (missed.kind, missed.will_retry) == ("credentials", True)
    assert "the session token has expired or is not valid; refresh the credentials" in missed.message
    file.write_text(as_profile(weed.environment))
    assert isinstance(events_until(writer, Durable)[-1], Durable)
    writer.close()
    assert stored_step(s3_uri, s3_settings, tmp_path / "here") == 1


def test_case_09_credentials_that_may_not_write_are_told_at_once(weed, s3_env, s3_uri, monkeypatch):
    for name, value in weed.reader_environment.items():
        monkeypatch.setenv(name, value)
    writer = writer_to(s3_uri, weed.settings())
    writer.submit(job(1), state_at(1))
    (event,) = events_until(writer, Failed)
    assert (event.kind, event.will_retry) == ("denied", False)
    assert "these credentials lack the right s3:PutObject" in event.message
    writer.close()
