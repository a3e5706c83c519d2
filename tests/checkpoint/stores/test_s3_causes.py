"""Case 20: what a StoreError keeps of botocore's exception holds no secret, whatever that one holds.

Texts and answers: test_s3_errors.py.
"""

import socket
import string
import threading
from contextlib import contextmanager

import pytest
from botocore import exceptions as aws
from botocore.awsrequest import AWSPreparedRequest, HeadersDict

from dflash_lightning.checkpoint.stores import StoreSettings, open_store
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.s3_errors import HiddenCause, Place, as_store_error
from tests.s3.no_secrets import assert_no_secret, texts_of

KEY, SECRET, TOKEN = "AKIAIOSFODNN7CAUSES1", "secret-key-of-the-causes", "session-token-of-the-causes"
SECRETS = [KEY, SECRET, TOKEN]
PLACE = Place("write", "s3:PutObject", "train", "ck/a", "https://s3.example.org")


def signed_request():
    """As botocore keeps it in a ConnectionClosedError."""
    headers = {
        "X-Amz-Security-Token": TOKEN.encode(),
        "Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/20260101, Signature=00ff00ff00ff".encode(),
    }
    return AWSPreparedRequest("PUT", "https://s3.example.org/train/ck/a", HeadersDict(headers), b"x", False)


def classes_below(one):
    return [found for child in one.__subclasses__() for found in (child, *classes_below(child))]


def raised_with_request(one):
    """Its text needs these values; the request comes on top, as HTTPClientError and its children take it."""
    fields = {name: "value" for _, name, _, _ in string.Formatter().parse(one.fmt) if name}
    if one is aws.WaiterError:
        return one(**fields, last_response={"request": signed_request()})
    return one(**fields, request=signed_request())


def behind(error):
    """Another exception, of whose causes one holds the request."""
    outer = aws.HTTPClientError(error="it broke")
    outer.__context__ = OSError("it broke")
    outer.__context__.__cause__ = error
    return outer


OF_BOTOCORE = [c for c in classes_below(aws.BotoCoreError) if c.__module__ == aws.__name__]
"""Not those of other packages, which are there where somebody imported them."""


@pytest.mark.parametrize("one", [aws.BotoCoreError, *OF_BOTOCORE], ids=lambda c: c.__name__)
@pytest.mark.parametrize("wrapped", [lambda error: error, behind], ids=["itself", "behind another"])
def test_case_20_no_class_of_botocore_gives_its_request_away(one, wrapped):
    raised = wrapped(raised_with_request(one))
    with pytest.raises(AssertionError, match="of the secrets in use"):
        assert_no_secret(texts_of(raised), SECRETS)  # so there is something to hide
    error = as_store_error(raised, PLACE)
    assert_no_secret(texts_of(error), SECRETS)
    assert isinstance(error.__cause__, HiddenCause)
    assert str(error.__cause__).startswith(type(raised).__name__)


def test_an_exception_without_secrets_is_kept():
    raised = behind(aws.ReadTimeoutError(endpoint_url="https://s3.example.org"))
    assert as_store_error(raised, PLACE).__cause__ is raised


@contextmanager
def server_that_drops_connections():
    """Its address. Each connection is closed as soon as something was sent."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(100)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_case_20_a_server_that_drops_the_connection_learns_the_secrets_alone(monkeypatch):
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    with server_that_drops_connections() as address:
        settings = StoreSettings(endpoint_url=address, path_style=True, max_attempts=1, region="us-east-1")
        store, _ = open_store("s3://train/ck", settings)
        with pytest.raises(StoreError, match="the connection broke or fell silent") as caught:
            store.put("ck/a", b"x")
    assert "ConnectionClosedError" in str(caught.value.__cause__)
    assert_no_secret(texts_of(caught.value), SECRETS)
