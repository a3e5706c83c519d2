"""Fixtures of this folder: a writer whose store can be held up, a server behind a proxy, and case 20."""

import logging

import pytest


@pytest.fixture
def gate():
    """Holds a writer's uploads up."""
    from tests.checkpoint.writing.writers import Gate

    return Gate()


@pytest.fixture
def writer(tmp_path, gate):
    from dflash_lightning.checkpoint.writing.attempt import Target
    from tests.checkpoint.writing.writers import folder_target, make_writer

    target = Target(folder_target(tmp_path).open_store, gate.publish)
    writer = make_writer(target)
    yield writer
    gate.open.set()
    writer.close()


@pytest.fixture
def quick_retries(monkeypatch):
    from dflash_lightning.checkpoint.writing import retrying

    monkeypatch.setattr(retrying, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(retrying, "LONGEST_PAUSE_S", 0.01)


@pytest.fixture
def hold(tmp_path):
    """While this file is there, an upload stays open after its last byte."""
    path = tmp_path / "hold"
    path.touch()
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def errors():
    """Add the StoreErrors that a test sees: each is looked through for secrets at its end."""
    return []


@pytest.fixture(autouse=True)
def nothing_secret_is_said(request, caplog, errors):
    """Case 20, for every test here that uses the server: what the loggers and the processes say."""
    if "weed" not in request.fixturenames:
        yield
        return
    from tests.s3.no_secrets import assert_no_secret, texts_of

    weed, capfd = request.getfixturevalue("weed"), request.getfixturevalue("capfd")
    caplog.set_level(logging.DEBUG)
    yield
    texts = [text for error in errors for text in texts_of(error)]
    assert_no_secret([caplog.text, *capfd.readouterr(), *texts], weed.secrets)


@pytest.fixture
def proxied(proxy, s3_uri):
    """(store, prefix) through the proxy."""
    from dflash_lightning.checkpoint.stores import open_store

    return open_store(s3_uri, proxy.settings())


@pytest.fixture
def direct(weed, s3_env):
    """The same bucket without the proxy."""
    from dflash_lightning.checkpoint.stores import open_store

    return open_store(f"s3://{weed.bucket}", weed.settings())[0]
