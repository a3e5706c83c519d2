"""What a token store says about itself: the part that makes a folder a store.

in / out  Manifest <-> manifest.json
law       read back equal; a store without one, or of another version, does not open
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

FILE_NAME = "manifest.json"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class SourceRecord:
    """One input file."""

    path: str
    """As it was given."""
    sha256: str
    rows: int
    kept: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    digest: str
    """Identity of the content: all ids and masks of both splits, in order."""
    tokenizer_hash: str
    template_hash: str | None
    """None: all rows were ready tokens."""
    template: str | None
    template_arguments: Mapping[str, Any]
    vocab_size: int
    """Ids of the tokenizer; the target's embedding has at least so many rows."""
    max_token_id: int
    stop_ids: tuple[int, ...]
    turns: str
    max_length: int | None
    validation_share: float
    """Share that was asked for; 0 where validation had files of its own."""
    read: int
    kept: Mapping[str, int]
    """Rows by split."""
    skipped: Mapping[str, int]
    """Rows by reason. read = sum of kept + sum of skipped."""
    truncated: int
    tokens: Mapping[str, int]
    supervised: Mapping[str, int]
    sources: tuple[SourceRecord, ...]
    version: int = VERSION

    def write(self, folder: Path) -> None:
        text = json.dumps(asdict(self), indent=2, ensure_ascii=False)
        (folder / FILE_NAME).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read_from(cls, folder: Path) -> "Manifest":
        """Raises ValueError for a manifest of another version of this project."""
        values = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        known = {field.name for field in fields(cls)}
        if values.get("version") != VERSION or values.keys() != known:
            raise ValueError(
                f"{folder} was written by another version of prepare ({values.get('version')}, this one "
                f"reads {VERSION}): run `python cli.py prepare` again"
            )
        values["stop_ids"] = tuple(values["stop_ids"])
        values["sources"] = tuple(SourceRecord(**record) for record in values["sources"])
        return cls(**values)
