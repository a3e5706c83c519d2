"""Case 9: credentials that expire during a run are read anew; those that stay wrong are a clear error."""

import pytest

from tests.checkpoint.over_s3 import LARGE, as_profile, fails

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
