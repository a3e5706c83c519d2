"""What two configs that describe one drafter have in common.

in    DrafterConfig
out   plain values, equal for two that describe one drafter; differing.py names the others
law   a field that no format carries, or that decides nothing for this drafter, is left out or empty
"""

from dataclasses import asdict
from typing import Any

from dflash_lightning.drafter.config import DrafterConfig

_PERMISSION = "allow_last_layer_tap"
"""Not written to any format: a reader grants it where the taps need it."""


def described(config: DrafterConfig) -> dict[str, Any]:
    """What a folder says of the drafter, as plain values of JSON."""
    fields = asdict(config)
    del fields[_PERMISSION]
    if "sliding_attention" not in config.layer_types:
        fields["sliding_window"] = None
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
