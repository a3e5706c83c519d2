"""Do two configs describe one drafter?

in    two DrafterConfigs
out   one line for each field that differs
law   a field that no format carries, or that decides nothing for this drafter, is no difference
"""

from collections.abc import Mapping
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


def differences(
    found: Mapping[str, Any], expected: Mapping[str, Any], *, there: str = "there", here: str = "here"
) -> list[str]:
    """`found`, `expected`: of described; a field that only one of them has is a difference too."""
    return [
        f"{name} {found.get(name)} {there}, {expected.get(name)} {here}"
        for name in {**expected, **found}
        if found.get(name) != expected.get(name)
    ]
