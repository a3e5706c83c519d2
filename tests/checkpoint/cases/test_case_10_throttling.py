"""Case 10: a server that asks to slow down is asked again, a bounded number of times, by fewer at once."""

import os

import pytest

from dflash_lightning.checkpoint.stores import open_store
from dflash_lightning.checkpoint.stores.settings import SMALLEST_PART
from dflash_lightning.checkpoint.writing.events import Durable, Failed
from tests.checkpoint.over_s3 import fails, stored_step, upload_to, writer_to
from tests.checkpoint.writing.writers import events_until, job, state_at

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


def test_case_10_fewer_parts_at_once_each_refused_one_asked_for_once_more_and_more_again_later(
    proxy, s3_uri, direct
):
    store, prefix = open_store(s3_uri, proxy.settings(max_attempts=10, upload_threads=4))
    data = os.urandom(12 * SMALLEST_PART)
    proxy.add("answer", method="PUT", query="partNumber", times=6, seconds=0.5)
    assert upload_to(store, f"{prefix}/a", data).size == len(data)
    parts = [
        crowd
        for crowd, (method, target) in zip(proxy.crowds, proxy.requests, strict=True)
        if method == "PUT" and "partNumber" in target
    ]
    assert len(parts) == 12 + 6
    assert max(parts[:4]) > 1
    assert parts[5:7] == [1, 1]  # the last refused one, and the next
    assert direct.read(f"{prefix}/a") == data


def test_case_10_a_time_of_throttling_is_outlived_with_few_requests(proxy, s3_uri, s3_settings, tmp_path):
    rule = proxy.add("answer", times=None)
    writer = writer_to(s3_uri, proxy.settings(max_attempts=3))
    writer.submit(job(1), state_at(1))
    missed = events_until(writer, Failed)[0]
    assert (missed.kind, missed.will_retry) == ("transient", True)
    refused = rule.seen
    rule.times = 0
    assert events_until(writer, Durable)[-1].retries == 1
    writer.close()
    assert refused == 3
    assert stored_step(s3_uri, s3_settings, tmp_path) == 1
