"""Case 10: a server that asks to slow down is asked again, a bounded number of times, by fewer at once."""

import pytest

from dflash_lightning.checkpoint.stores import open_store
from tests.checkpoint.over_s3 import fails

pytestmark = pytest.mark.slow


def test_case_10_a_busy_server_is_asked_again(proxy, proxied, direct):
    store, prefix = proxied
    proxy.add("answer", method="PUT", times=2)
    store.put(f"{prefix}/a", b"data")
    assert direct.read(f"{prefix}/a") == b"data"
    assert proxy.count("PUT") == 3


def test_case_10_the_number_of_attempts_is_bounded(proxy, s3_uri, errors):
    store, prefix = open_store(s3_uri, proxy.settings(max_attempts=3))
    proxy.add("answer", times=None)
    said = fails(lambda: store.put(f"{prefix}/a", b"data"), errors, "transient")
    assert f"cannot write {s3_uri}/a at http://127.0.0.1" in said
    assert "asks to slow down" in said
    assert proxy.count("PUT") == 3
