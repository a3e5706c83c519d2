"""A config without secrets, fit for a log folder and for loggers.

in    a resolved config, values of environment variables it may have been filled from
out   the same config: values under secret names and in URLs hidden, values of the environment given back as
      the `${oc.env:NAME}` they came from
law   what is not secret is untouched, so that the saved config still starts the same run
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "***"
_SECRET = re.compile(
    r"(^|_)(api_?key|key|key_id|secret|token|pass|passwd|password|passphrase|credential|authorization|bearer"
    r"|webhook|webhook_url)s?$"
)
_NOT_SECRET = {"mask_token", "tokens", "max_tokens", "max_block_tokens", "max_new_tokens"}
_LOGIN_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_SECRET_IN_URL = re.compile(
    r"(?<=[?&])([\w-]*(?:key|secret|token|password|sig|signature)=)[^&\s]+", re.IGNORECASE
)
_INTERPOLATION = re.compile(r"oc\.env:\s*([A-Za-z_][A-Za-z0-9_]*)")
_LONG = 8
"""Characters from which on a value is looked for inside of others; shorter ones must match as a whole."""


def redact(config: Any, environment: Mapping[str, str]) -> Any:
    """`config` (nested dicts, lists, plain values) without what its names, URLs or `environment` give away.

    Example: redact({"api_key": "k", "url": "https://me:pw@host/"}, {}) is {"api_key": "***", "url":
    "https://***@host/"}.
    """
    if isinstance(config, Mapping):
        return {
            name: HIDDEN if is_secret(str(name)) and _says_something(value) else redact(value, environment)
            for name, value in config.items()
        }
    if isinstance(config, list):
        return [redact(value, environment) for value in config]
    return _without_login(_as_interpolation(config, environment)) if isinstance(config, str) else config


def is_secret(name: str) -> bool:
    """True for names that end like a secret's: api_key, HF_TOKEN, awsSecretAccessKey, password."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()
    return bool(_SECRET.search(words)) and words not in _NOT_SECRET


def hidden_environment(texts: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables whose values must not be written: those that `texts` (config files, words of the command
    line) read by `${oc.env:NAME}`, and those with a secret's name."""
    named = {name for text in texts for name in _INTERPOLATION.findall(text)}
    return {
        name: value
        for name, value in environment.items()
        if value and (name in named or (is_secret(name) and len(value) >= _LONG))
    }


def _says_something(value: Any) -> bool:
    """Nothing is hidden where there is nothing: null, a switch, an interpolation."""
    return not (value is None or isinstance(value, bool) or value in ("", [], {}) or "${" in str(value))


def _as_interpolation(text: str, environment: Mapping[str, str]) -> str:
    for name, value in sorted(environment.items(), key=lambda item: -len(item[1])):
        if text == value or len(value) >= _LONG:
            text = text.replace(value, f"${{oc.env:{name}}}")
    return text


def _without_login(text: str) -> str:
    if "://" not in text or "${" in text:
        return text
    return _SECRET_IN_URL.sub(rf"\g<1>{HIDDEN}", _LOGIN_IN_URL.sub(HIDDEN, text))
