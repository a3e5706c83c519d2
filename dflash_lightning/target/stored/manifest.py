"""What a folder of hidden states says about itself, and whether it is what a run needs.

in / out  StatesManifest <-> manifest.json
law       read back equal; a folder without one, or of another version, does not open
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from dflash_lightning.differing import differing

FILE_NAME = "manifest.json"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class StatesIdentity:
    """Whose hidden states, of which tokens: what decides every value."""

    target: str
    """target_digest of the target: config and weights."""
    dtype: str
    """Precision in which the target runs, and in which its states are kept."""
    taps: tuple[int, ...]
    """Tapped layers, 0-based, in order."""
    final: bool
    """Whether the final norm's outputs are there as well, which distillation needs."""
    store: str
    """Content digest of the token store."""
    tokenizer: str
    template: str | None
    """None: all rows were ready tokens."""

    def plain(self) -> dict[str, Any]:
        """As JSON gives it back."""
        return {**asdict(self), "taps": list(self.taps)}

    def named(self) -> dict[str, Any]:
        """For people: the value of each field under its name in words."""
        return {words: _shown(getattr(self, name)) for name, words in NAMES.items()}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "StatesIdentity":
        return cls(**{**values, "taps": tuple(values["taps"])})


NAMES = {
    "target": "target (digest of config and weights)",
    "dtype": "precision of the target",
    "taps": "tapped layers",
    "final": "final states (for distillation)",
    "store": "token store (digest of its content)",
    "tokenizer": "tokenizer",
    "template": "chat template",
}


def lacking(there: StatesIdentity, wanted: StatesIdentity) -> list[str]:
    """Each reason why states of `there` cannot serve a run that wants `wanted`, with both values.

    More than is wanted is fine: layers that are not tapped, final states that nothing reads.
    """
    if set(wanted.taps) <= set(there.taps):
        wanted = replace(wanted, taps=there.taps)
    if there.final:
        wanted = replace(wanted, final=True)
    return differing(there.named(), wanted.named(), "there", "in this run")


def _shown(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, kw_only=True)
class StatesManifest:
    identity: StatesIdentity
    hidden_size: int
    """Features of one layer of the target."""
    samples: Mapping[str, int]
    """Samples by split, in the order of their numbers: train first, then validation."""
    shard_bytes: int
    """The most bytes of states in a shard, as it was asked for."""
    shards: tuple[int, ...] = ()
    """Size of each shard's file in bytes; empty while the folder is unfinished."""
    index_sha256: str = ""
    made_with: Mapping[str, str]
    """Versions, device and kernel: they move last digits, and refuse nothing."""
    version: int = VERSION

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's states."""
        return states_bytes(self.identity, self.hidden_size)

    def write(self, folder: Path, name: str = FILE_NAME) -> None:
        values = {**asdict(self), "identity": self.identity.plain()}
        scratch = folder / f".{name}"
        scratch.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        scratch.rename(folder / name)  # whole or not there, wherever a writer is killed

    @classmethod
    def read_from(cls, folder: Path, name: str = FILE_NAME) -> "StatesManifest":
        """Raises ValueError for a manifest that is damaged, of something else, or of another version."""
        try:
            values = json.loads((folder / name).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{folder / name} is damaged ({error}): write the hidden states again") from None
        if "identity" not in values:  # such as a token store, whose manifest has the same name
            raise ValueError(
                f"{folder} holds something else than hidden states: name the folder that "
                "`python cli.py prepare --hidden-states` wrote"
            )
        if values.get("version") != VERSION or values.keys() != {field.name for field in fields(cls)}:
            raise ValueError(
                f"hidden states at {folder} were written by another version of this project "
                f"({values.get('version')}, this one reads {VERSION}): write them again"
            )
        values["identity"] = StatesIdentity.from_plain(values["identity"])
        values["shards"] = tuple(values["shards"])
        return cls(**values)


BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


def states_bytes(identity: StatesIdentity, hidden_size: int) -> int:
    """Bytes that one token takes on disk: (taps + 1 for final states) x hidden size x bytes of a value."""
    return (len(identity.taps) + identity.final) * hidden_size * BYTES[identity.dtype]


def shard_name(shard: int) -> str:
    return f"shard-{shard:05d}.safetensors"
