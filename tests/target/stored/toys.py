"""A toy target with a folder of its hidden states, made the way the command makes it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from dflash_lightning.target.model import Target
from dflash_lightning.target.stored.folder import UnfinishedStates
from dflash_lightning.target.stored.layout import plan_layout
from dflash_lightning.target.stored.manifest import StatesIdentity, StatesManifest
from dflash_lightning.target.stored.writing import write_states
from tests.toy import HIDDEN, VOCAB

TAPS = (1, 3, 5)
LENGTHS = [9, 4, 12, 7, 7, 3]
SAMPLES = {"train": 4, "validation": 2}


def identity(**changes: object) -> StatesIdentity:
    values: dict[str, object] = {
        "target": "toy",
        "dtype": "float32",
        "taps": TAPS,
        "final": True,
        "store": "s",
        "tokenizer": "t",
        "template": None,
    }
    return StatesIdentity(**{**values, **changes})  # type: ignore[arg-type]


def manifest(shard_bytes: int = 20 * 1024, **changes: object) -> StatesManifest:
    """Shards of 20 tokens: 1024 bytes a token with three taps and final states."""
    made = identity(**changes)
    return StatesManifest(
        identity=made,
        hidden_size=HIDDEN,
        samples=SAMPLES,
        shard_bytes=shard_bytes,
        made_with={"torch": torch.__version__},
    )


def ids_of(sample: int) -> np.ndarray:
    return np.random.default_rng(sample).integers(0, VOCAB, LENGTHS[sample])


def unfinished(output: Path, lengths: Sequence[int] = LENGTHS, **changes: object) -> UnfinishedStates:
    made = manifest(**changes)
    layout = plan_layout(np.array(lengths), token_bytes=made.token_bytes, shard_bytes=made.shard_bytes)
    return UnfinishedStates(output, made, layout)


def write_toy(output: Path, target: Target, *, max_tokens: int = 24, **changes: object) -> StatesManifest:
    with unfinished(output, **changes) as folder:
        return write_states(folder, target, ids_of, max_tokens=max_tokens)
