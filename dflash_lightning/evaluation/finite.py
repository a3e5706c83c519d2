"""Plain values as JSON takes them, which has no NaN.

in    dictionaries, lists, tuples, numbers, texts
out   the same, with None for every float that is not finite
"""

from math import isfinite
from typing import Any


def finite(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: finite(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [finite(value) for value in values]
    return None if isinstance(values, float) and not isfinite(values) else values
