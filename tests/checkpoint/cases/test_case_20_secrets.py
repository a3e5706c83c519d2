"""Case 20: secrets are nowhere: not in logs, exceptions, manifests, messages to other processes."""

import logging
import pickle
from dataclasses import replace
from functools import partial

import pytest

from dflash_lightning.checkpoint.publishing.publish import publish
from dflash_lightning.checkpoint.redact import (
    known_secrets,
    protect,
    quiet_libraries,
    redact_text,
)
from dflash_lightning.checkpoint.stores import StoreSettings, open_store
from dflash_lightning.checkpoint.writing.attempt import Target
from dflash_lightning.checkpoint.writing.events import Durable
from tests.checkpoint.over_s3 import writer_to
from tests.checkpoint.test_redact import SECRET
from tests.checkpoint.writing.writers import PATIENCE_S, job, state_at
from tests.s3.no_secrets import assert_no_secret


@pytest.mark.parametrize("uri", ["s3://AKIA:secretsecret@bucket/a", "s3://b/a?X-Amz-Signature=secretsecret"])
def test_case_20_an_address_with_a_secret_is_refused_and_not_repeated(uri):
    with pytest.raises(ValueError, match="holds no login, query or fragment") as caught:
        open_store(uri, StoreSettings())
    assert "secretsecret" not in str(caught.value)


def test_case_20_an_endpoint_with_a_login_is_refused_and_not_repeated():
    with pytest.raises(ValueError, match="must not hold a login or a query") as caught:
        StoreSettings(endpoint_url="https://me:secretsecret@host")
    assert "secretsecret" not in str(caught.value)


def test_case_20_libraries_are_quiet_unless_someone_asks_and_even_then_hide_secrets(caplog):
    import botocore.auth  # noqa: F401 -- makes its logger

    protect(["a-very-secret-value"])
    quiet_libraries()
    assert "a-very-secret-value" in known_secrets()
    caplog.set_level(logging.DEBUG)
    logger = logging.getLogger("botocore.auth")
    logger.debug("nobody reads this")
    logging.getLogger("botocore").setLevel(logging.DEBUG)
    try:
        logger.debug("CanonicalRequest a-very-secret-value Authorization: AWS4 Signature=00ff00ff00")
    finally:
        logging.getLogger("botocore").setLevel(logging.WARNING)
    assert "nobody" not in caplog.text
    assert "CanonicalRequest *** Authorization: ***" in caplog.text
    assert_no_secret([caplog.text], ["a-very-secret-value"])


@pytest.mark.parametrize(
    "leak",
    [
        f"x {SECRET} y",
        "https://h/?X-Amz-Signature=0123456789abcdef",
        "Authorization: AWS4-HMAC-SHA256 Credential=x",
        "{'Authorization': b'AWS4-HMAC-SHA256'}",
        "AWS4 Signature=0123456789",
    ],
)
def test_case_20_a_planted_leak_makes_the_check_fail(leak):
    assert_no_secret(["clean", redact_text(leak, [SECRET])], [SECRET])
    with pytest.raises(AssertionError, match="text 1") as caught:
        assert_no_secret(["clean", leak], [SECRET])
    assert SECRET not in str(caught.value)


def test_case_20_the_check_needs_secrets_to_look_for():
    with pytest.raises(AssertionError, match="prove nothing"):
        assert_no_secret(["text"], [])


@pytest.mark.slow
def test_case_20_nothing_stored_or_sent_to_the_uploader_is_secret(weed, s3_env, s3_uri, s3_settings):
    """Not even where a run carries secrets among its facts by accident. Logs: every test of this folder that
    uses the server is looked through, see conftest.py."""
    open_store(s3_uri, s3_settings)[0].head("any")  # from here on the store knows what is secret
    key, secret = s3_env["AWS_ACCESS_KEY_ID"], s3_env["AWS_SECRET_ACCESS_KEY"]
    facts = {"command": f"run --key {key}", secret: "name", "nested": {"value": f"x{secret}x"}}
    writer = writer_to(s3_uri, s3_settings)
    writer.submit(replace(job(1), facts=facts, metrics={"loss": 1.0}), state_at(1))
    assert writer.flush(PATIENCE_S) == []
    (told,) = [event.uri for event in writer.poll() if isinstance(event, Durable)]
    writer.close()
    store, prefix = open_store(s3_uri, s3_settings)
    stored = [store.read(one.key).decode("latin1") for one in store.list(prefix) if "data/" not in one.key]
    assert any("--key ***" in text for text in stored)
    target = Target(partial(open_store, s3_uri, s3_settings), publish)
    sent = [pickle.dumps(target).decode("latin1"), repr(s3_settings)]
    assert_no_secret([*stored, told, *sent], weed.secrets)
