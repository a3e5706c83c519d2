"""The command lines that serve an exported drafter, and read it in Python.

in    config, format, folder, what is known of the target
out   program -> lines to paste into a shell
law   vLLM counts the tokens that are drafted, block_size - 1, and SGLang the anchor too (spec/dflash.md 1.8);
      a name that no server can open stands in no line: TARGET stands there, and a note says for what
"""

import json
import shlex
from pathlib import Path

from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.export.formats import Format
from dflash_lightning.export.target import TargetFacts
from dflash_lightning.target.embedded import EMBEDDED
from dflash_lightning.target.loading import is_hub_name

NO_TARGET = "TARGET"
"""Stands in a line for a target whose name servers cannot open."""


def launch_lines(
    config: DrafterConfig,
    folder: str | Path,
    target: TargetFacts | None,
    *,
    format: Format,
    remote_code: bool,
) -> dict[str, str]:
    """SGLang reads z-lab's format only."""
    model, drafter = shlex.quote(name_for_servers(target)), str(folder)
    speculative = {"method": "dflash", "model": drafter, "num_speculative_tokens": config.block_size - 1}
    lines = {"vLLM": f"vllm serve {model} --speculative-config {shlex.quote(json.dumps(speculative))}"}
    if format == "speculators":
        return {"vLLM": f"vllm serve {shlex.quote(drafter)}", "vLLM, another target": lines["vLLM"]}
    lines["SGLang"] = (
        f"python -m sglang.launch_server --model-path {model} --speculative-algorithm DFLASH "
        f"--speculative-draft-model-path {shlex.quote(drafter)} "
        f"--speculative-num-draft-tokens {config.block_size}"
    )
    if remote_code:
        lines["SGLang"] += " --trust-remote-code"
    return lines


def target_note(target: TargetFacts | None) -> str | None:
    """One line on what to put for TARGET in the lines of launch_lines; None where nothing is to be put."""
    if target is None:
        return f"{NO_TARGET}: folder or hub name of the model that the drafter was trained for"
    if target.name == EMBEDDED:
        return (
            f"{NO_TARGET}: the folder {EMBEDDED}-* in DFLASH_CACHE (~/.cache/dflash-lightning by default), "
            "which no server knows by that name"
        )
    if name_for_servers(target) == NO_TARGET:
        return f"{NO_TARGET}: where the server has the folder that was {target.name} in training"
    return None


def unchecked_note(target: TargetFacts | None) -> str | None:
    """One line where the target's name stands in the lines and nothing here says that it is the drafter's."""
    if target is None or target.is_here or name_for_servers(target) == NO_TARGET:
        return None
    if is_hub_name(target.name):
        return f"{target.name} was not checked: it is in no cache here, and nothing was asked of the hub"
    return f"{target.name} was not checked: there is no model's config.json at that path here"


def generate_line(folder: str | Path, target: str | None) -> str:
    """This project's own decoder, which knows the built-in target's name."""
    return (
        f"python cli.py generate --target {shlex.quote(target or NO_TARGET)} "
        f'--drafter {shlex.quote(str(folder))} --prompt "..."'
    )


def name_for_servers(target: TargetFacts | None) -> str:
    """A hub name, a folder that is here, or an absolute one, which may be the server's; else TARGET."""
    if target is None or target.name == EMBEDDED:
        return NO_TARGET
    path = Path(target.name).expanduser()
    is_open = is_hub_name(target.name) or path.is_dir() or path.is_absolute()
    if not is_open:
        return NO_TARGET
    return str(path) if target.name.startswith("~") else target.name  # a quoted ~ stays one
