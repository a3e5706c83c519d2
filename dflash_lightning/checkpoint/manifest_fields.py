"""Is a value what a manifest's field may hold? A text from a bucket is checked before it becomes a class.

law   what passes here builds a Manifest without an error of another kind
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")
_TYPES: dict[str, type[Any] | tuple[type[Any], ...]] = {
    "created": (int, float),
    "metrics": dict,
    "facts": dict,
    "monitor": (str, type(None)),
    "files": list,
    "parts": list,
    "step": int,
    "epoch": int,
    "serial": int,
    "size": int,
    "schema_version": int,
}
"""Types in JSON by the name of the field; every other field is a text."""


def as_type(value: Any, kind: type[T], what: str) -> T:
    """Raises ValueError that names the field and what it holds."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{what} must be {kind.__name__} in JSON, got {str(value)[:40]!r}")
    return value


def as_types(values: Any, kind: type[T], what: str) -> list[T]:
    return [as_type(value, kind, what) for value in as_type(values, list, what)]


def require_fields(cls: type[Any], values: Mapping[str, Any]) -> None:
    """Exactly the fields of the dataclass, each of its type; counts not negative, checksums in hex."""
    names = {field.name for field in fields(cls)}
    if names != set(values):
        missing, unknown = sorted(names - set(values)), sorted(set(values) - names)
        raise ValueError(f"fields missing: {missing}, unknown: {unknown}")
    for name, value in values.items():
        kind = _TYPES.get(name, str)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{name} cannot be {str(value)[:40]!r}")
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{name} must be 0 or more, got {value}")
        if name == "crc32":
            _require_crc32(value)
        if name == "mode" and value not in ("min", "max"):
            raise ValueError(f"mode must be min or max, got {value!r}")
        if name == "metrics":
            _require_numbers(value)


def require_parts(rows: Sequence[Sequence[Any]], size: int) -> None:
    """[offset, size, crc32] each, without gaps from 0 to the file's size."""
    end = 0
    for row in rows:
        if len(row) != 3 or as_type(row[0], int, "offset") != end or as_type(row[1], int, "size") <= 0:
            raise ValueError(f"parts must follow each other without gaps, but {row} comes after byte {end}")
        _require_crc32(row[2])
        end += row[1]
    if end != size:
        raise ValueError(f"the parts have {end} bytes, the file has {size}")


def _require_crc32(value: Any) -> None:
    if not isinstance(value, str) or re.fullmatch(r"[0-9a-f]{8}", value) is None:
        raise ValueError(f"crc32 must be 8 hex digits, got {str(value)[:40]!r}")


def _require_numbers(metrics: Mapping[str, Any]) -> None:
    for name, value in metrics.items():
        if isinstance(value, bool) or not (isinstance(value, int | float) or value in ("nan", "inf", "-inf")):
            raise ValueError(f"metric {name} cannot be {str(value)[:40]!r}")
