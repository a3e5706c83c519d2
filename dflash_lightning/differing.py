"""Two sets of settings side by side, for messages that refuse or report another one."""

from collections.abc import Mapping
from typing import Any


def differing(one: Mapping[str, Any], other: Mapping[str, Any], here: str, there: str) -> list[str]:
    """One line for each setting that is not the same, sorted by name, with its value in `one`, which is
    `here`, and in `other`, which is `there`."""
    return [
        f"{key}: {one.get(key)} {here}, {other.get(key)} {there}"
        for key in sorted({*one, *other})
        if one.get(key) != other.get(key)
    ]
