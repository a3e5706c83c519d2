"""Takes the drafter out of a training checkpoint.

in    a .ckpt file of `fit`: state_dict["drafter.*"] and dflash = {drafter: config fields, target: name}
out   TrainedDrafter(config, state, target, run)
law   nothing in the file is executed: tensors and plain Python only (weights_only)
"""

import dataclasses
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.export.facts import RunFacts, run_facts

PREFIX = "drafter."
ZIP = b"PK\x03\x04"
"""What every file begins with that `fit` writes."""
FOREIGN = re.compile(r"GLOBAL (\S+)")
WAY_OUT = (
    "give a .ckpt file that it wrote, a folder or an address of those (runs/mine/checkpoints, s3://...), or "
    "the folder of an exported drafter"
)


@dataclass(frozen=True)
class TrainedDrafter:
    """A drafter as training left it, and what it was trained for."""

    config: DrafterConfig
    state: Mapping[str, Float[Tensor, "..."]]
    """The drafter's own state dict, in training precision."""
    target: str | None
    """The target's name or path, as the run's settings gave it; None where the source does not say."""
    run: RunFacts | None = None
    """What is known of the training; None for a folder that was exported before."""


def read_checkpoint(path: str | Path, *, metrics: Mapping[str, float] | None = None) -> TrainedDrafter:
    """Read a checkpoint written by `fit`; `metrics`: of its manifest, where it came from a store.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is no checkpoint, or one of another program.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file; give a checkpoint of a run, such as runs/x/checkpoints")
    content = _load(path)
    facts = content.get("dflash")
    state = {
        name.removeprefix(PREFIX): t
        for name, t in content.get("state_dict", {}).items()
        if name.startswith(PREFIX)
    }
    if not isinstance(facts, Mapping) or not state:
        raise ValueError(
            f"{path} holds no drafter of this project (no `dflash` entry, or no `{PREFIX}*` weights); give a "
            "checkpoint that `python cli.py fit` wrote"
        )
    missing = [name for name in ("drafter", "target") if facts.get(name) is None]
    if missing:
        raise ValueError(
            f"{path} has no {' and no '.join(f'dflash.{name}' for name in missing)}: it was cut or changed "
            "after training; give a checkpoint as `python cli.py fit` wrote it"
        )
    config, run = _config(facts["drafter"], path), run_facts(content, path, metrics)
    return TrainedDrafter(config=config, state=state, target=str(facts["target"]), run=run)


def _config(saved: Mapping[str, Any], path: Path) -> DrafterConfig:
    """A field that this version does not know may change what the drafter computes: it is not read past."""
    known = {field.name: field for field in dataclasses.fields(DrafterConfig)}
    unknown = sorted(saved.keys() - known.keys())
    if unknown:
        raise ValueError(
            f"{path} states {', '.join(f'drafter.{name}' for name in unknown)}, which this version does not "
            "know: export it with the version that wrote it, or a later one"
        )
    missing = [n for n, field in known.items() if field.default is dataclasses.MISSING and n not in saved]
    if missing:
        raise ValueError(
            f"{path} does not state {', '.join(f'drafter.{name}' for name in missing)}: export it with the "
            "version that wrote it"
        )
    fields: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in saved.items()}
    try:
        return DrafterConfig(**fields)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _load(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        if file.read(len(ZIP)) != ZIP:
            raise ValueError(f"{path} is no checkpoint of `fit`; {WAY_OUT}")
    try:  # mapped, not read: the optimizer's moments are twice the size of the weights
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:  # torch's own advice is to execute what the file says
        foreign = FOREIGN.search(str(error))
        raise ValueError(
            f"{path} holds more than tensors and plain values{f' ({foreign[1]})' if foreign else ''}, which "
            f"is never loaded: it is no checkpoint as `fit` writes it; {WAY_OUT}"
        ) from error
    except (RuntimeError, EOFError, ValueError, OSError) as error:
        raise ValueError(
            f"{path} is damaged, cut short or another program's ({str(error).splitlines()[0]}); copy it "
            f"again, or {WAY_OUT}"
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is no checkpoint of `fit`: it holds a {type(content).__name__}; {WAY_OUT}")
    return content
