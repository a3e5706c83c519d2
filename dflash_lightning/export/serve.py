"""The command lines that serve an exported drafter, and read it in Python.

in    config, format, folder, the target's name
out   program -> lines to paste into a shell
law   vLLM counts the tokens that are drafted, block_size - 1, and SGLang the anchor too (spec/dflash.md 1.8)
"""

import json
import shlex
from pathlib import Path

from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.export.formats import Format

NO_TARGET = "TARGET"
"""Stands in a line for a target that is not known."""


def launch_lines(
    config: DrafterConfig, folder: str | Path, target: str | None, *, format: Format, remote_code: bool
) -> dict[str, str]:
    """SGLang reads z-lab's format only."""
    model, drafter = shlex.quote(target or NO_TARGET), str(folder)
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


def generate_line(folder: str | Path, target: str | None) -> str:
    """This project's own decoder."""
    return (
        f"python cli.py generate --target {shlex.quote(target or NO_TARGET)} "
        f'--drafter {shlex.quote(str(folder))} --prompt "..."'
    )
