"""Does an exported folder hold the drafter it came from? A fresh process reads it; the answers are compared.

in    config and weights of the drafter, the folder
out   Difference for each way of reading the folder
law   expected is the drafter with its weights rounded to the folder's dtype, computed in float32; logits are
      the target's head of these hidden states, so equal hidden states are equal logits
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.files import CONFIG_NAME
from dflash_lightning.export.reload import probe
from dflash_lightning.export.rounding import rounded

TOLERANCE = 1e-5
"""Of the largest expected value: another number of threads adds in another order."""


@dataclass(frozen=True)
class Difference:
    """What one way of reading the folder gave."""

    reader: str
    """dflash_lightning, or transformers with the folder's own code."""
    largest: float
    """Largest absolute difference of a hidden state; infinite where one is not a number."""
    scale: float
    """Largest expected hidden state."""

    @property
    def is_same(self) -> bool:
        return self.largest <= TOLERANCE * self.scale


def check_folder(config: DrafterConfig, state: Mapping[str, Tensor], folder: str | Path) -> list[Difference]:
    """Compare the drafter of `config` and `state` with what a fresh process reads from `folder`.

    Raises:
        ValueError: the folder cannot be read; the process's own message is in it.
    """
    expected = hidden_states(config, state, stored_dtype(Path(folder)))
    answers = _ask_fresh_process(Path(folder))
    return [difference(reader, expected, found) for reader, found in sorted(answers.items())]


def difference(reader: str, expected: Tensor, found: Tensor) -> Difference:
    scale = expected.abs().max().item()
    if found.shape != expected.shape or not torch.isfinite(found).all():
        return Difference(reader, float("inf"), scale)
    return Difference(reader, (found - expected).abs().max().item(), scale)


@torch.no_grad()
def hidden_states(config: DrafterConfig, state: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
    """The drafter's answer to the probe, [1, block_size, hidden_size] float32, with rounded weights."""
    with torch.device("meta"):
        drafter = DFlashDrafter(config)
    weights = {name: tensor.float() for name, tensor in rounded(state, dtype).items()}
    drafter.load_state_dict(weights, assign=True)
    out: Tensor = drafter.eval()(*probe(config), None)
    return out


def stored_dtype(folder: Path) -> torch.dtype:
    """Of the weights, as the config states it; bfloat16 where it does not."""
    raw = json.loads((folder / CONFIG_NAME).read_text(encoding="utf-8"))
    dtype = getattr(torch, str(raw.get("dtype") or raw.get("torch_dtype") or "bfloat16"), None)
    return dtype if isinstance(dtype, torch.dtype) else torch.bfloat16


def _ask_fresh_process(folder: Path) -> dict[str, Tensor]:
    package_root = str(Path(__file__).parents[2])
    with tempfile.TemporaryDirectory(prefix="dflash-check-") as scratch:
        answer = Path(scratch) / "hidden.safetensors"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (package_root, os.environ.get("PYTHONPATH")))),
            "HF_MODULES_CACHE": scratch,  # code of an earlier export may be cached under the same name
            "HF_HUB_OFFLINE": "1",
        }
        command = [
            sys.executable,
            "-m",
            "dflash_lightning.export.reload",
            str(folder.absolute()),
            str(answer),
        ]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode or not answer.is_file():
            reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise ValueError(f"a fresh process cannot read {folder}: {reason}")
        return load_file(answer)
