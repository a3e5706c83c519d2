"""What the words of S3 servers and of botocore mean for us: tables only.

law   each reason ends in a way out; {bucket}, {key}, {right} and {endpoint} are filled in by `s3_errors.py`
"""

from typing import Final

from botocore import exceptions as aws

from dflash_lightning.checkpoint.stores.errors import Kind

_DENIED: Final[tuple[Kind, str]] = (
    "denied",
    "these credentials lack the right {right}; add it to the policy of the user or of the bucket {bucket}",
)
_NO_SECRET: Final[tuple[Kind, str]] = (
    "credentials",
    "the secret key does not belong to the access key; check AWS_SECRET_ACCESS_KEY or the profile",
)
_EXPIRED: Final[tuple[Kind, str]] = (
    "credentials",
    "the session token has expired or is not valid; refresh the credentials, new ones are picked up",
)
_REGION: Final[tuple[Kind, str]] = (
    "endpoint",
    "the bucket {bucket} belongs to another region or endpoint; set region and endpoint_url to its own",
)
_BUSY: Final[tuple[Kind, str]] = ("transient", "the server asks to slow down; try again later")
_BROKEN: Final[tuple[Kind, str]] = ("transient", "the server failed inside; try again later")
_CORRUPT: Final[tuple[Kind, str]] = (
    "corrupt",
    "the bytes changed on their way, the checksum tells; if it happens again, look at memory and network",
)
_THERE: Final[tuple[Kind, str]] = ("conflict", "something is there already; another run may use this prefix")
_FULL: Final[tuple[Kind, str]] = (
    "full",
    "the store or its quota is full; free space or keep fewer checkpoints",
)
_NO_OBJECT: Final[tuple[Kind, str]] = ("missing", "there is no such object; list what is there")

CODES: Final[dict[str, tuple[Kind, str]]] = {
    "AccessDenied": _DENIED,
    "AllAccessDisabled": _DENIED,
    "AccountProblem": _DENIED,
    "InvalidAccessKeyId": (
        "credentials",
        "the server does not know this access key; check AWS_ACCESS_KEY_ID or the profile, and the endpoint",
    ),
    "SignatureDoesNotMatch": _NO_SECRET,
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "InvalidToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "AuthorizationHeaderMalformed": _REGION,
    "PermanentRedirect": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "NoSuchBucket": ("missing", "there is no bucket {bucket} at {endpoint}; create it or correct the name"),
    "NoSuchKey": _NO_OBJECT,
    "NoSuchUpload": ("transient", "the upload was aborted or has expired; it has to start again"),
    "RequestTimeTooSkewed": (
        "clock",
        "this machine's clock is too far from the server's for any signature; set the clock (NTP)",
    ),
    "RequestExpired": (
        "clock",
        "the request was signed too long ago by the server's clock; set this machine's clock (NTP)",
    ),
    "BadDigest": _CORRUPT,
    "InvalidDigest": _CORRUPT,
    "XAmzContentSHA256Mismatch": _CORRUPT,
    "XAmzContentChecksumMismatch": _CORRUPT,
    "SlowDown": _BUSY,
    "Throttling": _BUSY,
    "ThrottlingException": _BUSY,
    "TooManyRequests": _BUSY,
    "RequestLimitExceeded": _BUSY,
    "ServiceUnavailable": _BUSY,
    "InternalError": _BROKEN,
    "RequestTimeout": ("transient", "the server waited too long for the bytes; try again later"),
    "OperationAborted": _BUSY,
    "ConditionalRequestConflict": (  # often an earlier attempt of our own, whose answer was lost
        "transient",
        "another request for the same object is under way; try again later",
    ),
    "PreconditionFailed": _THERE,
    "QuotaExceeded": _FULL,
    "InsufficientStorage": _FULL,
    "XMinioStorageFull": _FULL,
    "EntityTooLarge": ("other", "the server takes no objects or parts this large; lower part_bytes"),
}
CLASSES: Final[tuple[tuple[tuple[type[Exception], ...], Kind, str], ...]] = (
    (
        (aws.NoCredentialsError, aws.PartialCredentialsError),
        "credentials",
        "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile",
    ),
    (
        (aws.ProfileNotFound, aws.CredentialRetrievalError, aws.SSOError, aws.MetadataRetrievalError),
        "credentials",
        "the credentials could not be loaded; check the profile or the process that provides them",
    ),
    ((aws.FlexibleChecksumError,), *_CORRUPT),
    (
        (
            aws.ReadTimeoutError,
            aws.IncompleteReadError,
            aws.ResponseStreamingError,
            aws.ConnectionClosedError,
        ),
        "transient",
        "the connection broke or fell silent; try again later (read_timeout_s sets how long to wait)",
    ),
    (
        (aws.SSLError,),
        "endpoint",
        "no trusted TLS connection to {endpoint}; check https or http in endpoint_url, and AWS_CA_BUNDLE",
    ),
    (
        (aws.ConnectionError, aws.HTTPClientError),
        "endpoint",
        "nothing answers at {endpoint}; check endpoint_url, the network and the server",
    ),
    (
        (aws.InvalidEndpointConfigurationError,),
        "endpoint",
        "there is no address of a server; write endpoint_url, or AWS_ENDPOINT_URL, as http://host:port",
    ),
    ((aws.NoRegionError,), "endpoint", "no region is known; set region, or AWS_DEFAULT_REGION"),
    (
        (aws.ParamValidationError,),
        "other",
        "the bucket name {bucket} or the key is not valid; correct the address",
    ),
)
STATUSES: Final[dict[int, tuple[Kind, str]]] = {
    301: _REGION,
    400: ("other", "the server did not accept the request"),
    403: _DENIED,
    404: _NO_OBJECT,
    408: _BUSY,
    412: _THERE,
    429: _BUSY,
    503: _BUSY,
    507: _FULL,
}
BUSY_CODES: Final = frozenset(code for code, said in CODES.items() if said is _BUSY)
BUSY_STATUSES: Final = frozenset(status for status, said in STATUSES.items() if said is _BUSY)
"""Answers that ask to slow down."""
