"""Nothing secret in any text: the check that every fault test of S3 ends with."""

import re
from collections.abc import Iterable

_FORMS = (
    re.compile(r"Signature=(?!\*\*\*)[0-9a-zA-Z%+/]{8,}"),
    re.compile(r"Authorization['\"]?\s*[:=]\s*b?['\"]?(?!\*\*\*)\S{8,}", re.IGNORECASE),
    re.compile(r"X-Amz-(?:Signature|Credential|Security-Token)=(?!\*\*\*)[^&\s]{8,}", re.IGNORECASE),
)


def assert_no_secret(texts: Iterable[str], secrets: Iterable[str]) -> None:
    """`texts`: logs, exceptions with their causes, files; `secrets`: secret keys, tokens, access key ids.

    The failure names the text by its number and never quotes it: a test log is a log.
    """
    secrets = [*secrets]
    assert secrets, "without the secrets in use the check would prove nothing"
    assert all(len(secret) >= 4 for secret in secrets), "an empty secret would be found everywhere"
    for number, text in enumerate(texts):
        leaks = sum(secret in text for secret in secrets)
        if leaks:
            raise AssertionError(f"text {number} holds {leaks} of the secrets in use; it is {len(text)} long")
        found = next((form.pattern for form in _FORMS if form.search(text)), None)
        if found is not None:
            raise AssertionError(f"text {number} holds a signed value, of the form {found}")


def texts_of(error: BaseException | None) -> list[str]:
    """What a logger could print of an exception: itself, its causes and contexts, the answers they keep."""
    texts: list[str] = []
    seen: set[int] = set()
    queue = [error]
    while queue:
        one = queue.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            texts += [str(one), repr(one), repr(one.args), repr(vars(one))]
            queue += [one.__cause__, one.__context__]
    return texts
