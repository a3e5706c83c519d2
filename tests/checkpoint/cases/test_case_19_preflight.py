"""Case 19: what is wrong with a place for checkpoints is said before training, by a real server."""

from dataclasses import replace

import pytest

from dflash_lightning.checkpoint.claiming.preflight import preflight
from dflash_lightning.checkpoint.stores import StoreSettings, open_store
from tests.checkpoint.over_s3 import refusal

pytestmark = pytest.mark.slow


def test_case_19_a_good_bucket(weed, s3_settings, s3_uri):
    store, prefix = open_store(s3_uri, s3_settings)
    preflight(store, prefix)
    assert list(store.list(prefix)) == []
    assert list(store.list_uploads(prefix)) == []


def test_case_19_an_identity_that_may_only_read(weed, s3_env, monkeypatch, s3_settings):
    for name, value in weed.reader_environment.items():
        monkeypatch.setenv(name, value)
    error = refusal(open_store("s3://train/readonly", s3_settings)[0], "readonly")
    assert error.kind == "denied"
    assert "these credentials lack the right s3:PutObject" in str(error)
    assert "403 AccessDenied" in str(error)
    assert "left behind" not in str(error)


def test_case_19_a_bucket_that_is_not_there(s3_settings):
    error = refusal(open_store("s3://nowhere/ck", s3_settings)[0])
    assert error.kind == "missing"
    assert "there is no bucket nowhere at http://127.0.0.1" in str(error)


def test_case_19_a_wrong_secret_key(s3_env, monkeypatch, s3_settings):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong" * 8)
    error = refusal(open_store("s3://train/ck", s3_settings)[0])
    assert error.kind == "credentials"
    assert "the secret key does not belong to the access key" in str(error)


def test_case_19_an_unknown_access_key(s3_env, monkeypatch, s3_settings):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN0000000")
    error = refusal(open_store("s3://train/ck", s3_settings)[0])
    assert error.kind == "credentials"
    assert "the server does not know this access key" in str(error)
    assert "AKIAUNKNOWN0000000" not in str(error)


def test_case_19_no_credentials(s3_env, monkeypatch, s3_settings):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    error = refusal(open_store("s3://train/ck", s3_settings)[0])
    assert error.kind == "credentials"
    assert "there are no credentials; set AWS_ACCESS_KEY_ID" in str(error)


def test_case_19_an_unknown_profile(s3_env, s3_settings):
    error = refusal(open_store("s3://train/ck", replace(s3_settings, profile="nobody"))[0])
    assert error.kind == "credentials"
    assert "check the profile" in str(error)


def test_case_19_an_endpoint_where_nothing_listens(s3_env):
    settings = StoreSettings(endpoint_url="http://127.0.0.1:9", path_style=True)
    error = refusal(open_store("s3://train/ck", settings)[0])
    assert error.kind == "endpoint"
    assert "nothing answers at http://127.0.0.1:9; check endpoint_url" in str(error)
