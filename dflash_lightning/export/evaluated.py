"""What `evaluate` measured, as a section of the model card.

in    the JSON that `evaluate` wrote, the drafter of the card
out   Markdown: acceptance length by set of prompts and way to decode
law   figures are copied, never computed; an evaluation of two drafters, or of another one, belongs on no card
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from dflash_lightning.export.checkpoint import TrainedDrafter
from dflash_lightning.export.identity import other_than
from dflash_lightning.export.target import TargetFacts

PLAIN = "plain"
"""The method without a drafter: its acceptance length is 1."""


def acceptance_section(
    path: str | Path, trained: TrainedDrafter, *, target: TargetFacts | None, dtype: torch.dtype | None
) -> str:
    """Args:
        dtype: that `trained` is exported in; None: as its weights are.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is no evaluation of one drafter, or one of another drafter or target.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no evaluation {path}; write one with `python cli.py evaluate`")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        section = _section(found, str(path))
        other = other_than(found, trained, target, dtype)
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not the JSON that `python cli.py evaluate` writes") from error
    if other:
        raise ValueError(
            f"{path} holds figures of something else than this drafter ({'; '.join(other)}): evaluate the "
            "exported folder and give that JSON with --evaluation; if only the target's name differs, give "
            "--target as it was evaluated"
        )
    return section


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
