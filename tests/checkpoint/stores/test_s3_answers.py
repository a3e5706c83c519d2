"""Answers of servers old and new, by botocore's own Stubber where a whole call is meant."""

import datetime
import zlib

import pytest
from botocore.stub import ANY, Stubber

from dflash_lightning.checkpoint.stores import StoreError, StoreSettings
from dflash_lightning.checkpoint.stores.s3 import S3Store, _connect
from dflash_lightning.checkpoint.stores.s3_answers import facts_of, from_base64, leftovers_of, to_base64
from dflash_lightning.checkpoint.stores.s3_calls import S3Calls
from dflash_lightning.checkpoint.stores.s3_multipart import etag_of
from dflash_lightning.checkpoint.stores.s3_upload import part_bytes

MIB = 1 << 20
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture
def stubbed(monkeypatch):
    """(store with these settings, stub of its client)"""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASTUBBED00000000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "stubbed-secret-key")
    stubs = []

    def make(**settings):
        settings = StoreSettings(region="eu-west-1", **settings)
        store, client = S3Store("train", settings), _connect(settings)
        store._calls = S3Calls(lambda: client, "train")
        stubs.append(Stubber(client))
        stubs[-1].activate()
        return store, stubs[-1]

    yield make
    for stub in stubs:
        stub.assert_no_pending_responses()


def test_checksums_in_both_forms():
    assert to_base64(0x2C34B699) == "LDS2mQ=="
    assert from_base64("LDS2mQ==") == "2c34b699"
    assert from_base64(to_base64(0x0000ABCD)) == "0000abcd"
    assert from_base64("LDS2mQ==-3") is None  # of the checksums of three parts
    assert from_base64("") is None
    assert from_base64("no base64!") is None


def test_facts_of_what_an_old_server_says():
    facts = facts_of("a", {"ContentLength": 3, "LastModified": NOON})
    assert (facts.size, facts.modified, facts.crc32, facts.etag) == (3, NOON.timestamp(), None, None)
    listed = facts_of("a", {"Size": 3, "LastModified": NOON, "ETag": '"x"'})
    assert (listed.size, listed.etag) == (3, '"x"')


@pytest.mark.parametrize(("kind", "expected"), [("FULL_OBJECT", "2c34b699"), ("COMPOSITE", None)])
def test_a_checksum_of_checksums_is_not_one_of_the_object(kind, expected):
    answer = {"ContentLength": 3, "ChecksumCRC32": "LDS2mQ==", "ChecksumType": kind}
    assert facts_of("a", answer).crc32 == expected


def test_bulk_deletion_is_believed_key_by_key():
    answer = {"Deleted": [{"Key": "a"}], "Errors": [{"Key": "b", "Code": "AccessDenied", "Message": "no"}]}
    left = leftovers_of(["a", "b", "c"], answer)
    assert {key: error.response["Error"]["Code"] for key, error in left.items()} == {
        "b": "AccessDenied",
        "c": "InternalError",
    }


def test_a_failed_deletion_does_not_hide_the_others(stubbed):
    store, stub = stubbed()
    stub.add_response(
        "delete_objects",
        {"Deleted": [{"Key": "a"}], "Errors": [{"Key": "b", "Code": "AccessDenied", "Message": "no"}]},
        {"Bucket": "train", "Delete": {"Objects": [{"Key": "a"}, {"Key": "b"}]}},
    )
    failed = store.delete(["a", "b"])
    assert list(failed) == ["b"]
    assert failed["b"].kind == "denied"
    assert "cannot delete s3://train/b" in str(failed["b"])
    assert "s3:DeleteObject" in str(failed["b"])


def test_an_old_server_returns_no_checksums_at_all(stubbed):
    store, stub = stubbed()
    stub.add_response("create_multipart_upload", {"UploadId": "u"})
    stub.add_response("upload_part", {"ETag": '"e"'})
    stub.add_response(
        "complete_multipart_upload",
        {},
        {
            "Bucket": "train",
            "Key": "a",
            "UploadId": "u",
            "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": '"e"'}]},
        },
    )
    stub.add_response("head_object", {"ContentLength": 4, "LastModified": NOON})
    upload = store.open_upload("a", size_hint=0)
    upload.write(b"data")
    assert upload.finish().crc32 == f"{zlib.crc32(b'data'):08x}"


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ({"ContentLength": 3}, "holds 3 bytes with crc32 None, but 4 bytes"),
        ({"ContentLength": 4, "ChecksumCRC32": "AAAAAA==", "ChecksumType": "FULL_OBJECT"}, "crc32 00000000"),
        (None, "was accepted but is not there"),
    ],
)
def test_what_the_server_has_is_compared_with_what_was_written(stubbed, head, text):
    store, stub = stubbed()
    stub.add_response("create_multipart_upload", {"UploadId": "u", "ChecksumType": "FULL_OBJECT"})
    stub.add_response("upload_part", {"ETag": '"e"', "ChecksumCRC32": "rfLz5w=="})
    stub.add_response("complete_multipart_upload", {})
    if head is None:
        stub.add_client_error("head_object", "404", http_status_code=404)
    else:
        stub.add_response("head_object", head)
    upload = store.open_upload("a", size_hint=0)
    upload.write(b"data")
    with pytest.raises(StoreError, match=text) as caught:
        upload.finish()
    assert caught.value.kind == "corrupt"


@pytest.mark.parametrize("present", [True, False])
def test_a_server_without_conditions_is_looked_at_before_a_put(stubbed, present):
    store, stub = stubbed()
    stub.add_client_error("put_object", "NotImplemented", http_status_code=501)
    if present:
        for _ in range(2):  # before the put, and to see whether what is there is ours
            stub.add_response("head_object", {"ContentLength": 9})
        with pytest.raises(StoreError, match="something is there already"):
            store.put("owner", b"mine", only_if_absent=True)
    else:
        stub.add_client_error("head_object", "404", http_status_code=404)
        stub.add_response("put_object", {})
        store.put("owner", b"mine", only_if_absent=True)


def test_encryption_is_asked_for_with_every_object(stubbed):
    store, stub = stubbed(sse="aws:kms", sse_kms_key_id="key-1")
    asked = {"Bucket": "train", "Key": "a", "ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "key-1"}
    stub.add_response("put_object", {}, {**asked, "Body": b"data", "ChecksumCRC32": ANY})
    stub.add_response(
        "create_multipart_upload",
        {"UploadId": "u"},
        {**asked, "ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"},
    )
    store.put("a", b"data")
    store.open_upload("a", size_hint=0)


def test_settings_reach_the_client():
    client = _connect(
        StoreSettings(
            region="eu-west-1",
            connect_timeout_s=3.0,
            read_timeout_s=4.0,
            max_attempts=7,
            retry_mode="adaptive",
            path_style=True,
        )
    )
    config = client.meta.config
    assert (config.connect_timeout, config.read_timeout, client.meta.region_name) == (3, 4, "eu-west-1")
    assert config.retries == {"mode": "adaptive", "total_max_attempts": 7}
    assert config.s3["addressing_style"] == "path"


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, 16 * MIB),
        (1_200_000_000, 16 * MIB),
        (9_000 * 16 * MIB, 16 * MIB),
        (9_000 * 16 * MIB + 1, 16 * MIB + 1),
    ],
)
def test_parts_grow_with_the_object(size, expected):
    assert part_bytes(size, 16 * MIB) == expected
    assert size / part_bytes(size, 16 * MIB) <= 9_000


def test_the_etag_of_parts():
    part = {"ETag": '"4974f94e50bcfbab8bb3d438fe016900"'}
    assert etag_of([part]) == '"6a684d541698773e6bbcf856513c7156-1"'  # as SeaweedFS answered
    assert etag_of([{"ETag": '"not-md5"'}]) is None
