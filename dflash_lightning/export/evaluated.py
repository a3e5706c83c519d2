"""What `evaluate` measured, as a section of the model card.

in    the JSON that `evaluate` wrote
out   Markdown: acceptance length by set of prompts and way to decode
law   figures are copied, never computed; an evaluation of two drafters belongs on no card
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PLAIN = "plain"
"""The method without a drafter: its acceptance length is 1."""


def acceptance_section(path: str | Path) -> str:
    """Raises: FileNotFoundError; ValueError where the file is no evaluation of one drafter."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no evaluation {path}; write one with `python cli.py evaluate`")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return _section(found, str(path))
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not the JSON that `python cli.py evaluate` writes") from error


def _section(found: Mapping[str, Any], source: str) -> str:
    if len(found["drafters"]) != 1:
        raise ValueError(f"{source} compares {len(found['drafters'])} drafters; a card takes figures of one")
    sets = {"all": found["all"], **found["categories"]}
    methods = [name for name in found["all"]["methods"] if name != PLAIN]
    lines = ["| prompts | number | " + " | ".join((*methods, "prompt lookup")) + " |"]
    lines.append("|---" * (len(methods) + 3) + "|")
    for name, part in sets.items():
        taus = [part["methods"][method]["tau_pooled"] for method in methods]
        shown = [_number(tau) for tau in (*taus, part["prompt_lookup"]["tau_pooled"])]
        lines.append(f"| {name} | {part['prompts']} | " + " | ".join(shown) + " |")
    sampling = "greedy" if found["sampling"] is None else f"sampling {json.dumps(found['sampling'])}"
    return (
        f"Acceptance length tau, pooled: tokens committed per pass of the target `{found['target']}` in "
        f"{found['dtype']}, {sampling}, at most {found['max_new_tokens']} new tokens, blocks of "
        f"{found['block_size']}.\n\n" + "\n".join(lines)
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
