"""What the tests over a real S3 server share."""

import os
import time

import pytest

from dflash_lightning.checkpoint.preflight import preflight
from dflash_lightning.checkpoint.stores import StoreError
from dflash_lightning.checkpoint.stores.settings import SMALLEST_PART

LARGE = os.urandom(SMALLEST_PART) + b"and a second part"


def fails(call, errors, kind):
    with pytest.raises(StoreError) as caught:
        call()
    errors.append(caught.value)
    assert caught.value.kind == kind
    return str(caught.value)


def upload_to(store, key, data=LARGE):
    upload = store.open_upload(key, size_hint=len(data))
    try:
        upload.write(data)
        return upload.finish()
    except StoreError:
        upload.abort()
        raise


def as_profile(environment):
    return (
        f"[default]\naws_access_key_id={environment['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key={environment['AWS_SECRET_ACCESS_KEY']}\n"
    )


def refusal(store, prefix="ck"):
    """The error of a preflight, and how long it took."""
    started = time.monotonic()
    with pytest.raises(StoreError) as caught:
        preflight(store, prefix)
    assert time.monotonic() - started < 60  # "within seconds", on a machine that may be busy
    return caught.value
