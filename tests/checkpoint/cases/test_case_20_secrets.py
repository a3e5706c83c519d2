"""Case 20: secrets are nowhere: not in logs, exceptions, manifests, messages to other processes."""

import logging

import pytest

from dflash_lightning.checkpoint.redact import (
    known_secrets,
    protect,
    quiet_libraries,
    redact_text,
)
from dflash_lightning.checkpoint.stores import StoreSettings, open_store
from tests.checkpoint.test_redact import SECRET
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
