"""Does an exported folder hold the drafter it came from? Its config is compared field by field, and a fresh
process reads it: the answers are compared.

in    config and weights of the drafter, the folder
out   the fields that differ; Difference for each way of reading the folder
law   expected is the drafter with each weight rounded to the dtype it has in the folder, computed in float32;
      logits are the target's head of these hidden states, so equal hidden states are equal logits. What they
      do not show (mask token, tapped layers, a window longer than the probe) is in the config
"""

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

from dflash_lightning.differing import differing
from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.files import read_dtypes
from dflash_lightning.export.formats import load_config
from dflash_lightning.export.reload import probe
from dflash_lightning.export.rounding import precision, rounded_like
from dflash_lightning.export.same_config import described

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


def config_differences(config: DrafterConfig, folder: str | Path) -> list[str]:
    """One line for each field that `folder` states otherwise; `config`: of the drafter it should hold.

    Raises:
        FileNotFoundError, ValueError: as load_folder.
    """
    # a folder in speculators' format may not say how deep the target is
    found = load_config(folder, depth=config.num_target_layers)
    return differing(described(found), described(config), "there", "in the source")


def check_folder(config: DrafterConfig, state: Mapping[str, Tensor], folder: str | Path) -> list[Difference]:
    """Compare the drafter of `config` and `state` with what a fresh process reads from `folder`.

    Raises:
        ValueError: the folder cannot be read; the process's own message is in it.
    """
    expected = hidden_states(config, state, read_dtypes(Path(folder)))
    answers = _ask_fresh_process(Path(folder))
    return [difference(reader, expected, found) for reader, found in sorted(answers.items())]


def difference(reader: str, expected: Tensor, found: Tensor) -> Difference:
    scale = expected.abs().max().item()
    if found.shape != expected.shape or not torch.isfinite(found).all():
        return Difference(reader, float("inf"), scale)
    return Difference(reader, (found - expected).abs().max().item(), scale)


@torch.no_grad()
def hidden_states(
    config: DrafterConfig, state: Mapping[str, Tensor], dtypes: Mapping[str, torch.dtype]
) -> Tensor:
    """The drafter's answer to the probe, [1, block_size, hidden_size] float32.

    Each weight is rounded to its entry of `dtypes`; one without an entry keeps its own.
    """
    with torch.device("meta"):
        drafter = DFlashDrafter(config)
    weights = {name: tensor.float() for name, tensor in rounded_like(state, dtypes).items()}
    drafter.load_state_dict(weights, assign=True)
    out: Tensor = drafter.eval()(*probe(config), None)
    return out


def stored_precision(state: Mapping[str, Tensor], folder: str | Path) -> str:
    """Of the folder's copies of `state`, in words; nothing is read but headers."""
    dtypes = read_dtypes(Path(folder))
    return precision(
        {n: torch.empty_like(t, dtype=dtypes.get(n, t.dtype), device="meta") for n, t in state.items()}
    )


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
