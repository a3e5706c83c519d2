"""What the tests over a real S3 server share."""

import os
import time
from functools import partial

import pytest
import torch

from dflash_lightning.checkpoint.claiming.preflight import preflight
from dflash_lightning.checkpoint.publishing.publish import publish
from dflash_lightning.checkpoint.resuming.fetch import fetch
from dflash_lightning.checkpoint.stores import StoreError, open_store
from dflash_lightning.checkpoint.stores.settings import SMALLEST_PART
from dflash_lightning.checkpoint.writing.attempt import Target
from tests.checkpoint.writing.writers import make_writer

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


def writer_to(uri, settings, **options):
    """A writer to a bucket: a thread, or with `shared` a process."""
    return make_writer(Target(partial(open_store, uri, settings), publish), **options)


def stored_step(uri, settings, folder):
    """Of the newest checkpoint, downloaded, verified, and with the content of its step."""
    state = torch.load(fetch(uri, settings, folder), weights_only=True)
    assert torch.equal(state["weight"], torch.full((1000,), float(state["step"])))
    return state["step"]
