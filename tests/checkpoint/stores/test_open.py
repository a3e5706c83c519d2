import pickle
import subprocess
import sys

import pytest

from dflash_lightning.checkpoint.stores import StoreError, StoreSettings, open_store
from dflash_lightning.checkpoint.stores.keys import join_key
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.s3 import S3Store
from dflash_lightning.checkpoint.stores.settings import SMALLEST_PART


def opened(uri):
    return open_store(uri, StoreSettings())


@pytest.mark.parametrize(
    ("uri", "address", "prefix"),
    [
        ("s3://bucket", "s3://bucket/k", ""),
        ("s3://bucket/", "s3://bucket/k", ""),
        ("s3://bucket/runs/a/", "s3://bucket/k", "runs/a"),
        ("/data/runs", "/data/runs/k", ""),
        ("file:///data/my%20runs", "/data/my runs/k", ""),
        ("memory://tests/runs", "memory://tests/k", "runs"),
    ],
)
def test_an_address_is_a_store_and_a_prefix(uri, address, prefix):
    store, found = opened(uri)
    assert (store.uri("k"), found) == (address, prefix)


def test_a_relative_path_is_below_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert opened("runs")[0].root == tmp_path / "runs"


@pytest.mark.parametrize(
    "uri", ["http://host/b", "s3:///key", "file://host/path", "gs://bucket/a", "s3:/bucket/a", "s3:b"]
)
def test_other_addresses_are_refused(uri):
    with pytest.raises(ValueError, match="is no checkpoint address: write s3://bucket/prefix or the path"):
        opened(uri)


def test_a_prefix_that_no_key_could_have_is_refused():
    with pytest.raises(ValueError, match="is not usable"):
        opened("s3://bucket/a//b")


def test_keys_are_joined():
    assert join_key("", "last.json") == "last.json"
    assert join_key("runs/a", "last.json") == "runs/a/last.json"


def test_stores_go_into_other_processes(tmp_path):
    """As the writer's process gets them."""
    settings = StoreSettings(endpoint_url="http://127.0.0.1:9", region="r")
    again = pickle.loads(pickle.dumps(S3Store("b", settings)))
    assert (again.bucket, again.settings) == ("b", settings)
    assert pickle.loads(pickle.dumps(LocalStore(tmp_path))).root == tmp_path
    error = pickle.loads(pickle.dumps(StoreError("text", kind="full")))
    assert (str(error), error.kind) == ("text", "full")


def test_folders_need_no_boto3_and_buckets_no_s3fs():
    program = (
        "import sys; from dflash_lightning.checkpoint.stores import StoreSettings, open_store\n"
        "open_store('/tmp/x', StoreSettings()); assert 'boto3' not in sys.modules\n"
        "sys.modules['s3fs'] = sys.modules['fsspec'] = None  # importing them fails now\n"
        "open_store('s3://b/p', StoreSettings())\n"
        "assert 'boto3' in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"endpoint_url": "s3.example.org"}, "must look like https://host"),
        ({"endpoint_url": "ftp://host"}, "must look like https://host"),
        ({"max_attempts": 0}, "max_attempts must be above 0, got 0"),
        ({"read_timeout_s": -1.0}, "read_timeout_s must be above 0"),
        ({"part_bytes": 1024}, f"S3 accepts {SMALLEST_PART} and more"),
        ({"sse_kms_key_id": "k"}, "needs sse: aws:kms, got sse: None"),
    ],
)
def test_settings_that_no_server_could_accept_are_refused(changes, text):
    with pytest.raises(ValueError, match=text):
        StoreSettings(**changes)


def test_a_quick_store_gives_up_early():
    quick = S3Store("b", StoreSettings()).quick().settings
    assert (quick.max_attempts, quick.connect_timeout_s, quick.read_timeout_s) == (3, 3.0, 10.0)
    assert S3Store("b", StoreSettings(max_attempts=1)).quick().settings.max_attempts == 1
