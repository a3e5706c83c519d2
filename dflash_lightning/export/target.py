"""What can be said of the target without loading or fetching it.

in    its name as the run's settings give it, or as the user gives it for servers
out   TargetFacts: name, architecture, shape and, where its files are on this machine, digest
law   what is not on this machine is not said; what is there and damaged is an error that names the file
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

from dflash_lightning.export.files import read_json
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
    hidden_size: int | None = None
    """From the same file."""
    vocab_size: int | None = None
    """From the same file."""
    digest: str | None = None
    """Of config and weights (target/identity.py); None where they are not a folder on this machine."""
    is_here: bool = False
    """Its config.json is on this machine, so that the shape was read."""
    on_hub: bool = False
    """The name is known to be the hub's: `owner/model` alone may be a folder of the machine of training."""


def target_facts(name: str, *, for_servers: bool = False) -> TargetFacts:
    """What is not here is not said.

    Args:
        for_servers: the user gave `name` as servers know it, so that `owner/model` is the hub's.

    Raises:
        ValueError: its config.json or its weights are here and damaged.
    """
    path, on_hub = _config_path(name), is_hub_name(name)
    if path is None:
        return TargetFacts(name, on_hub=on_hub and for_servers)
    raw = read_json(path)
    text = raw.get("text_config")
    shape: Mapping[str, Any] = text if isinstance(text, Mapping) else raw
    return TargetFacts(
        name,
        tuple(raw.get("architectures") or ()),
        depth=shape.get("num_hidden_layers"),
        hidden_size=shape.get("hidden_size"),
        vocab_size=shape.get("vocab_size"),
        digest=None if on_hub else target_digest(name),  # a hub name's would look for news on the hub
        is_here=True,
        on_hub=on_hub,
    )


def _config_path(name: str) -> Path | None:
    if is_hub_name(name):
        found = try_to_load_from_cache(name, "config.json")
        return Path(found) if isinstance(found, str) else None
    if name != EMBEDDED and not Path(name).expanduser().is_dir():
        return None
    try:
        path = resolve_target(name) / "config.json"
    except FileNotFoundError:  # the package of the built-in target may be missing here
        return None
    return path if path.is_file() else None
