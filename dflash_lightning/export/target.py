"""What can be said of the target without loading or fetching it.

in    its name as the run's settings give it
out   TargetFacts: name, architecture and, where its files are on this machine, digest
"""

import json
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from dflash_lightning.target.embedded import EMBEDDED, resolve_target
from dflash_lightning.target.identity import target_digest
from dflash_lightning.target.loading import is_hub_name


@dataclass(frozen=True)
class TargetFacts:
    """The model that a drafter drafts for."""

    name: str
    architectures: tuple[str, ...] = ()
    """As its config.json lists them; empty where that file is not on this machine."""
    depth: int | None = None
    """Its layers, from the same file."""
    digest: str | None = None
    """Of config and weights (target/identity.py); None where they are not a folder on this machine."""


def target_facts(name: str) -> TargetFacts:
    """Never an error: what is not here is not said."""
    path = _config_path(name)
    if path is None:
        return TargetFacts(name)
    raw = json.loads(path.read_text(encoding="utf-8"))
    depth = (raw.get("text_config") or raw).get("num_hidden_layers")
    digest = None if is_hub_name(name) else target_digest(name)  # a hub name's would look for news on the hub
    return TargetFacts(name, tuple(raw.get("architectures") or ()), depth, digest)


def _config_path(name: str) -> Path | None:
    if is_hub_name(name):
        found = try_to_load_from_cache(name, "config.json")
        return Path(found) if isinstance(found, str) else None
    if name != EMBEDDED and not Path(name).is_dir():
        return None
    path = resolve_target(name) / "config.json"
    return path if path.is_file() else None
