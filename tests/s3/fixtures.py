"""Fixtures of the S3 server, for every folder of tests: `tests/conftest.py` imports them.

`weed`       the one server of this test run; started by the first test that asks for it
`s3_env`     the process environment with its credentials and no others
`s3_settings` StoreSettings that reach it
`proxy`      a fault proxy in front of it; `proxy.settings` go through the proxy
"""

import itertools

import pytest

# Nothing of the package is imported up here: pytest loads this file before the hook that checks annotations.
_AWS = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_CA_BUNDLE")
_numbers = itertools.count()


@pytest.fixture(scope="session")
def weed(tmp_path_factory):
    from tests.s3.server import Weed

    server = Weed(tmp_path_factory.mktemp("weed"))
    try:
        server.start()
        yield server
    finally:
        server.kill()  # its folder goes away as well, so nothing needs a clean end


@pytest.fixture
def s3_env(weed, monkeypatch):
    for name in _AWS:
        monkeypatch.delenv(name, raising=False)
    for name, value in weed.environment.items():
        monkeypatch.setenv(name, value)
    return weed.environment


@pytest.fixture
def s3_settings(weed, s3_env):
    return weed.settings()


@pytest.fixture
def s3_uri(weed):
    """A prefix of its own for each test."""
    return f"s3://{weed.bucket}/test-{next(_numbers)}"


@pytest.fixture
def proxy(weed, s3_env):
    from tests.s3.proxy import FaultProxy

    with FaultProxy(weed) as running:
        yield running
