"""Hidden states from disk in a run: opened once for what this run needs, read batch by batch.

in    the folder in `model.hidden_states`, the settings of the run, batches
out   TargetStates as from the target itself, on the CPU
law   states of another target, other taps or other tokens are refused before training, on all ranks alike
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.stored.reading import StoredStates
from dflash_lightning.training.build import states_identity
from dflash_lightning.training.gather import texts_of_all_ranks

if TYPE_CHECKING:
    from dflash_lightning.training.module import DFlashModule


def open_stored_states(module: "DFlashModule", folder: str) -> StoredStates:
    """A collective: where one rank's folder does not serve, all ranks raise ValueError with its message."""
    stored, problem = None, ""
    try:
        stored = _open(module, folder)
    except (ValueError, OSError) as error:
        problem = str(error)
    problems = map(json.loads, texts_of_all_ranks(module.trainer, json.dumps(problem)))
    if first := next(filter(None, problems), None):
        raise ValueError(first)
    assert stored is not None
    return stored


def _open(module: "DFlashModule", folder: str) -> StoredStates:
    if module.target_devices:
        raise ValueError(
            f"model.target_devices is {module.target_devices}, but hidden states come from disk "
            f"({folder}), so those devices would idle: set it to 0, or model.hidden_states to null"
        )
    stored = StoredStates.open(folder)
    wanted = states_identity(
        module.target_digest,
        module.target_settings,
        module.drafter_config.target_layer_ids,
        final=module.objective.needs_target_logits,
        store=module.data.held_out,
    )
    stored.require_serves(wanted)
    return stored


def read_states(stored: StoredStates, batch: TokenBatch, taps: Sequence[int], *, final: bool) -> TargetStates:
    """States of a batch, on the CPU; page-locked where there is a GPU to copy them to.

    Raises: ValueError where a sample's bytes on disk were damaged.
    """
    ids, padded_length = batch.sample_ids.tolist(), batch.input_ids.shape[1]
    pin = torch.cuda.is_available()
    return stored.states(batch.split, ids, padded_length, taps=taps, final=final, pin=pin)
