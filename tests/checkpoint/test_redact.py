import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lightning.checkpoint.redact import (
    RedactingFilter,
    redact_text,
)

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCY=="
TOKEN = "FwoGZXIvYXdzEBYaDE/abc+123=="
KEY = "AKIAIOSFODNN7EXAMPLE"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("GET https://me:pw@host:9000/b?x=1", "GET https://***@host:9000/b?x=1"),
        (
            "https://h/b/k?X-Amz-Signature=0aff&X-Amz-Date=2026",
            "https://h/b/k?X-Amz-Signature=***&X-Amz-Date=2026",
        ),
        (
            f"?X-Amz-Credential={KEY}%2F2026&X-Amz-Security-Token={TOKEN}",
            "?X-Amz-Credential=***&X-Amz-Security-Token=***",
        ),
        (f"AWSAccessKeyId={KEY}&Signature=ab%3D&Expires=9", "AWSAccessKeyId=***&Signature=***&Expires=9"),
        (
            f"Authorization: AWS4-HMAC-SHA256 Credential={KEY}/2026/us/s3, Signature=0af3\nHost: h",
            "Authorization: ***\nHost: h",
        ),
        (
            f"{{'Authorization': b'AWS4-HMAC-SHA256 Credential={KEY}/2026, Signature=0af3', 'Host': 'h'}}",
            "{'Authorization': ***', 'Host': 'h'}",
        ),
        (f"'X-Amz-Security-Token': '{TOKEN}'", "'X-Amz-Security-Token': ***'"),
        (f"AWS_SECRET_ACCESS_KEY={SECRET} cmd", "AWS_SECRET_ACCESS_KEY=*** cmd"),
        (f'{{"SecretAccessKey": "{SECRET}", "Version": 1}}', '{"SecretAccessKey": ***", "Version": 1}'),
        (f"the key {KEY} is not known", "the key *** is not known"),
        ("ASIAQWERTYUIOPASDFGH", "***"),
    ],
)
def test_each_form_of_a_secret_is_hidden(text, hidden):
    assert redact_text(text) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s3://bucket/run/step=100.ckpt",
        "http://127.0.0.1:8333/train",
        "mail me@host about the signature of this function",
        "403 SignatureDoesNotMatch: the secret key does not belong to the access key",
        "these credentials lack the right s3:PutObject",
        "check AWS_SECRET_ACCESS_KEY or the profile",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile",
    ],
)
def test_what_is_not_secret_is_untouched(text):
    assert redact_text(text) == text


def test_known_values_are_hidden_wherever_they_stand():
    assert redact_text("a-longsecret-b longsecretmore", ["longsecret", "longsecretmore"]) == "a-***-b ***"
    assert redact_text("a cat", ["a"]) == "a cat"  # too short to be a secret


@settings(max_examples=40, deadline=None)
@given(
    st.text(st.characters(codec="ascii")),
    st.lists(st.from_regex(r"[a-z0-9]{4,9}", fullmatch=True), max_size=3),
)
def test_known_values_are_gone_and_hiding_twice_changes_nothing(text, secrets):
    once = redact_text(text + "".join(secrets) + text, secrets)
    assert not [secret for secret in secrets if secret in once]
    assert redact_text(once, secrets) == once


def formatted(record):
    return logging.Formatter().format(record)


def test_a_record_keeps_its_words_and_loses_its_secrets():
    noisy = RedactingFilter()
    noisy.secrets.add("hunter2hunter2")
    try:
        raise RuntimeError(f"Signature=0123456789 of {KEY}")
    except RuntimeError as error:
        record = logging.LogRecord(
            "x", logging.DEBUG, "f", 1, "token %s %d", ("hunter2hunter2", 7), (RuntimeError, error, None)
        )
    assert noisy.filter(record)
    text = formatted(record)
    assert "token *** 7" in text
    assert "RuntimeError: Signature=*** of ***" in text
