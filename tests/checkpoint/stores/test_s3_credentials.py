"""Whatever a credential_process does wrong is a StoreError of kind "credentials", which is waited for."""

import json
import sys
from datetime import UTC, datetime, timedelta

import pytest

from dflash_lightning.checkpoint.stores import StoreSettings, open_store
from dflash_lightning.checkpoint.stores.errors import StoreError
from tests.s3.no_secrets import assert_no_secret, texts_of

KEY, SECRET = "AKIAIOSFODNN7PROCESS", "plain-secret-of-the-process"
NOBODY = "http://127.0.0.1:9"
"""An address where nothing answers: who gets as far as this has credentials."""


def printed(**changes):
    return json.dumps({"Version": 1, "AccessKeyId": KEY, "SecretAccessKey": SECRET, **changes})


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Credentials come from what `chain(command)` names."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    settings = StoreSettings(endpoint_url=NOBODY, path_style=True, max_attempts=1, region="us-east-1")
    return open_store("s3://train/ck", settings)[0]


@pytest.fixture
def chain(tmp_path):
    def use(command):
        (tmp_path / "config").write_text(f"[default]\ncredential_process = {command}\n")

    return use


@pytest.fixture
def prints(tmp_path, chain):
    """The process prints one text after the other, the last one again and again."""

    def use(*texts):
        for number, text in enumerate(texts):
            (tmp_path / f"text-{number}").write_text(text)
        script = tmp_path / "process.py"
        script.write_text(
            "import sys, pathlib\n"
            f"folder = pathlib.Path({str(tmp_path)!r})\n"
            "texts = sorted(folder.glob('text-*'))\n"
            "sys.stdout.write(texts[0].read_text())\n"
            "if len(texts) > 1: texts[0].unlink()\n"
        )
        chain(f"{sys.executable} -S {script}")

    return use


def assert_credentials(store, text=""):
    with pytest.raises(
        StoreError, match="the credentials could not be loaded; check the profile or the"
    ) as it:
        store.put("ck/a", b"x")
    assert it.value.kind == "credentials"
    assert text in str(it.value)
    assert_no_secret(texts_of(it.value), [KEY, SECRET])


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"Version": 1, "AccessKeyId": "' + KEY[:-2],
        printed()[:-8],
        SECRET,
        "null",
        "[]",
        '{"Version": 1}',
        printed(Version=2),
        printed(Expiration="tomorrow"),
    ],
)
def test_what_a_process_prints_that_is_no_credentials(text, store, prints):
    prints(text)
    assert_credentials(store)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("/no/such/tool --now", "/no/such/tool"),
        ('/bin/sh -c "exit', "No closing quotation"),
        ("/bin/sh -c 'echo the login has ended >&2; exit 3'", "the login has ended"),
    ],
)
def test_a_process_that_does_not_run(command, text, store, chain):
    chain(command)
    assert_credentials(store, text)


@pytest.mark.parametrize("later", ["", printed()[:-8], "expired"])
def test_credentials_that_cannot_be_renewed_while_requests_are_signed(later, store, prints):
    """So late that botocore insists on new ones before each signature."""
    soon = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    past = printed(Expiration=(datetime.now(UTC) - timedelta(minutes=5)).isoformat())
    prints(printed(Expiration=soon), past if later == "expired" else later)
    assert_credentials(store)


def test_the_next_call_asks_again(store, prints):
    prints("", printed())
    assert_credentials(store)
    with pytest.raises(StoreError, match=f"nothing answers at {NOBODY}"):
        store.put("ck/a", b"x")


def test_an_address_that_is_none_is_told(store, prints, monkeypatch):
    prints(printed())
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:8333")
    store, _ = open_store("s3://train/ck", StoreSettings(region="us-east-1"))
    with pytest.raises(StoreError, match="write endpoint_url, or AWS_ENDPOINT_URL, as http") as caught:
        store.put("ck/a", b"x")
    assert caught.value.kind == "endpoint"
