"""The config.yaml that fit writes beside its logs.

in    a log's file, or the config's
out   where the config lies; what it holds
law   a config that cannot be read is None: it costs a report its settings, nothing else
"""

from pathlib import Path
from typing import Any

import yaml

CONFIG = "config.yaml"
LOGGER_FOLDERS = ("version_", "run-", "offline-run-")
"""How the folder of one start begins; the run's own lies two above."""


def load_config(path: Path) -> Any | None:
    """Its content, of whatever kind; None where there is no such file, or no YAML in it."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, OSError, RecursionError):
        return None


def find_config(log: Path, run: Path) -> Path | None:
    """The config of the start that wrote `log`, else that of the `run` it belongs to."""
    places = [log.parent, run]
    if log.parent.name.startswith(LOGGER_FOLDERS):
        places.append(log.parent.parent.parent)
    return next((place / CONFIG for place in places if (place / CONFIG).is_file()), None)
