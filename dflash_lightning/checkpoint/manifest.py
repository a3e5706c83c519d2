"""The manifest of one checkpoint: what it consists of, and how to tell that nothing of it has changed.

in    plain values
out   JSON that people can read, or a ValueError with the reason why such a text is no manifest
law   from_json(to_json(m)) == m, and no other text of the same meaning: a text that was cut, or in which a
      bit of meaning has flipped, is refused by its own digest
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dflash_lightning.checkpoint.job import Facts, Mode
from dflash_lightning.checkpoint.layout import DATA, manifest_key, name_of_data, require_name
from dflash_lightning.checkpoint.manifest_fields import as_type, as_types, require_fields, require_parts
from dflash_lightning.checkpoint.redact import known_secrets, redact_text

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Part:
    """A range that can be fetched and verified by itself."""

    offset: int
    size: int
    """Bytes."""
    crc32: str
    """8 hex digits."""


@dataclass(frozen=True)
class DataFile:
    """One object: the whole checkpoint, or one rank's shard of it."""

    key: str
    """Below the prefix, so that a copied folder stays valid."""
    size: int
    crc32: str
    """Of the whole object, 8 hex digits."""
    parts: tuple[Part, ...]
    """Without gaps, in order; empty for an empty file."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Its presence makes the data a checkpoint."""

    name: str
    """step=8-1a2b3c4d: the same for data and manifest."""
    serial: int
    """Counts what was published under the prefix: larger is newer, whatever the clocks say."""
    run_id: str
    step: int
    epoch: int
    kind: str
    """As in SaveJob; a text, since later versions may save for other reasons."""
    created: float
    """Seconds since 1970, by the writer's clock: for people, nothing is decided by it."""
    files: tuple[DataFile, ...]
    """One, or one per shard in the order of ranks."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    monitor: str | None = None
    """The metric that decided what was best, and in which direction."""
    mode: Mode = "min"
    facts: Facts = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def key(self) -> str:
        """Below the prefix."""
        return manifest_key(self.name)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def value(self, metric: str | None) -> float | None:
        """Of a metric; None where there is none, or where it is not finite."""
        value = math.nan if metric is None else self.metrics.get(metric, math.nan)
        return value if math.isfinite(value) else None

    def to_json(self) -> bytes:
        body = _plain(asdict(self))
        body["files"] = [
            {**file, "parts": [[p["offset"], p["size"], p["crc32"]] for p in file["parts"]]}
            for file in body["files"]
        ]
        return json.dumps({**body, "digest": _digest(body)}, indent=1, allow_nan=False).encode()

    @staticmethod
    def from_json(text: bytes) -> "Manifest":
        """Raises: ValueError with the reason, newer schema versions included."""
        body = _object(text)
        version = as_type(body.get("schema_version"), int, "schema_version")
        if version > SCHEMA_VERSION:
            raise ValueError(
                f"it has schema version {version}, and this program knows {SCHEMA_VERSION} at most: "
                "use the version that wrote it, or a newer one"
            )
        if body.pop("digest", None) != _digest(body):
            raise ValueError("it does not have the digest that it was written with: it was cut or changed")
        require_fields(Manifest, body)
        manifest = Manifest(
            **body
            | {
                "files": tuple(_file(values) for values in as_types(body["files"], dict, "files")),
                "metrics": {name: float(value) for name, value in body["metrics"].items()},
            }
        )
        if require_name(manifest.name) != manifest.step:
            raise ValueError(f"its name {manifest.name} and its step {manifest.step} differ")
        if not manifest.files or any(name_of_data(f.key) != manifest.name for f in manifest.files):
            raise ValueError(f"its files are not {DATA}{manifest.name} alone")
        return manifest


def _file(values: Mapping[str, Any]) -> DataFile:
    require_fields(DataFile, values)
    rows = as_types(values["parts"], list, "parts")
    require_parts(rows, values["size"])
    return DataFile(values["key"], values["size"], values["crc32"], tuple(Part(*row) for row in rows))


def _object(text: bytes) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON, or was cut: {error}") from error
    return dict(as_type(values, dict, "the manifest"))


def _digest(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """JSON knows no NaN and no infinity: they become text that `float` reads. Text loses its secrets."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return redact_text(value, known_secrets())
    if isinstance(value, Mapping):
        return {redact_text(key, known_secrets()): _plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [_plain(inner) for inner in value]
    return value
