"""Each answer that a server or botocore can give becomes a kind to decide by and a text to act on."""

import pytest
from botocore import exceptions as aws
from botocore.exceptions import ClientError

from dflash_lightning.checkpoint.redact import protect
from dflash_lightning.checkpoint.stores.errors import RETRYABLE
from dflash_lightning.checkpoint.stores.s3_codes import CLASSES, CODES, STATUSES
from dflash_lightning.checkpoint.stores.s3_errors import Place, as_store_error
from tests.s3.no_secrets import assert_no_secret, texts_of

PLACE = Place("write", "s3:PutObject", "train", "ck/a", "https://s3.example.org")


def answer(code, status=400, message="as the server says", **more):
    error = {"Code": code, "Message": message, **more}
    return ClientError({"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


@pytest.mark.parametrize(
    ("code", "status", "kind", "text"),
    [
        ("AccessDenied", 403, "denied", "these credentials lack the right s3:PutObject"),
        ("403", 403, "denied", "lack the right s3:PutObject; add it to the policy"),
        ("KMS.NotFoundException", 400, "denied", "check sse_kms_key_id"),
        ("InvalidAccessKeyId", 403, "credentials", "does not know this access key"),
        ("SignatureDoesNotMatch", 403, "credentials", "secret key does not belong to the access key"),
        ("ExpiredToken", 400, "credentials", "refresh the credentials"),
        ("PermanentRedirect", 301, "endpoint", "the bucket train belongs to another region"),
        ("AuthorizationHeaderMalformed", 400, "endpoint", "set region and endpoint_url"),
        ("NoSuchBucket", 404, "missing", "there is no bucket train at https://s3.example.org; create it"),
        ("NoSuchKey", 404, "missing", "there is no such object"),
        ("404", 404, "missing", "there is no such object"),
        ("NoSuchUpload", 404, "transient", "the upload was aborted or has expired"),
        ("ConditionalRequestConflict", 409, "transient", "is under way; try again"),
        ("RequestTimeTooSkewed", 403, "clock", "this machine's clock is too far from the server's"),
        ("BadDigest", 400, "corrupt", "the bytes changed on their way"),
        ("SlowDown", 503, "transient", "asks to slow down"),
        ("Unheard", 503, "transient", "asks to slow down"),
        ("Unheard", 500, "transient", "failed inside"),
        ("InternalError", 500, "transient", "failed inside"),
        ("TooManyRequests", 429, "transient", "slow down"),
        ("PreconditionFailed", 412, "conflict", "another run may use this prefix"),
        ("QuotaExceeded", 403, "full", "free space or keep fewer checkpoints"),
        ("Unheard", 400, "other", "did not accept the request"),
    ],
)
def test_an_answer_is_explained(code, status, kind, text):
    error = as_store_error(answer(code, status), PLACE)
    assert error.kind == kind
    assert error.retryable == (kind in RETRYABLE)
    assert str(error).startswith("cannot write s3://train/ck/a at https://s3.example.org: ")
    assert text in str(error)
    assert isinstance(error.__cause__, ClientError)


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (aws.NoCredentialsError(), "credentials", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (aws.ProfileNotFound(profile="x"), "credentials", "check the profile"),
        (aws.UnauthorizedSSOTokenError(), "credentials", "could not be loaded"),
        (
            aws.CredentialRetrievalError(provider="p", error_msg="e"),
            "credentials",
            "process that provides them",
        ),
        (
            aws.EndpointConnectionError(endpoint_url="u", error="e"),
            "endpoint",
            "nothing answers at https://s3",
        ),
        (aws.ConnectTimeoutError(endpoint_url="u", error="e"), "endpoint", "check endpoint_url"),
        (aws.ProxyConnectionError(proxy_url="u", error="e"), "endpoint", "nothing answers"),
        (aws.SSLError(endpoint_url="u", error="e"), "endpoint", "no trusted TLS connection"),
        (aws.ReadTimeoutError(endpoint_url="u", error="e"), "transient", "fell silent"),
        (aws.ConnectionClosedError(endpoint_url="u", error="e"), "transient", "the connection broke"),
        (aws.IncompleteReadError(actual_bytes=1, expected_bytes=2), "transient", "the connection broke"),
        (aws.FlexibleChecksumError(error_msg="e"), "corrupt", "the bytes changed"),
        (aws.NoRegionError(), "endpoint", "set region"),
        (
            aws.InvalidEndpointConfigurationError(msg="m"),
            "endpoint",
            "write endpoint_url, or AWS_ENDPOINT_URL",
        ),
        (aws.ParamValidationError(report="r"), "other", "the bucket name train"),
        (aws.DataNotFoundError(data_path="p"), "other", "the server refused"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_what_botocore_raises_by_itself_is_explained(raised, kind, text):
    error = as_store_error(raised, PLACE)
    assert (error.kind, error.__cause__) == (kind, raised)
    assert text in str(error)


def test_every_reason_tells_what_to_do():
    reasons = [*CODES.values(), *STATUSES.values(), *((kind, reason) for _, kind, reason in CLASSES)]
    for _, reason in reasons:
        filled = reason.format(bucket="b", key="k", right="r", endpoint="e")
        assert ";" in filled or filled == "the server did not accept the request"


@pytest.mark.parametrize(
    "raised",
    [
        # What S3 puts into its answer to a wrong signature, beside the words that are shown.
        answer(
            "SignatureDoesNotMatch",
            403,
            AWSAccessKeyId="AKIAIOSFODNN7EXAMPLE",
            StringToSign="AWS4-HMAC-SHA256\nAKIAIOSFODNN7EXAMPLE",
            SignatureProvided="0af3cd",
        ),
        answer("InvalidAccessKeyId", 403, "The key AKIAIOSFODNN7EXAMPLE is unknown"),
        answer("InvalidToken", 400, "bad token session-token-of-the-run"),
        aws.EndpointConnectionError(
            endpoint_url="https://me:pass-word@host/?X-Amz-Signature=00ff00ff00ff", error="e"
        ),
        aws.CredentialRetrievalError(
            provider="custom-process", error_msg='{"SecretAccessKey": "wJalrXUtnFEMI"}'
        ),
    ],
)
def test_case_20_neither_the_text_nor_its_causes_give_a_secret_away(raised):
    protect(["session-token-of-the-run"])
    error = as_store_error(raised, PLACE)
    secrets = ["AKIAIOSFODNN7EXAMPLE", "session-token-of-the-run", "pass-word", "wJalrXUtnFEMI", "0af3cd"]
    assert_no_secret(texts_of(error), secrets)
    assert error.__cause__ is not None
    assert type(raised).__name__ in str(error.__cause__)


def test_long_answers_are_cut():
    assert len(str(as_store_error(answer("Unheard", 400, "<html>" * 1000), PLACE))) < 500
