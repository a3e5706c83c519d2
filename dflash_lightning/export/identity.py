"""Which drafter is this, and which target: what an evaluation says of itself, and a card asks for.

in    drafters as they were read and a target's name, as `evaluate` has them; or a drafter to be exported
out   plain values for JSON; or the ways in which they are of something else
law   the same weights under another name, in another folder or format, are the same drafter; one weight more
      or less rounded is another, unless this drafter rounded alike is that one
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dflash_lightning.differing import differing
from dflash_lightning.export.checkpoint import TrainedDrafter
from dflash_lightning.export.formats import ExportedDrafter
from dflash_lightning.export.rounding import precision, rounded
from dflash_lightning.export.same_config import described
from dflash_lightning.export.target import TargetFacts, target_facts


def identity(drafters: Mapping[str, ExportedDrafter], target: str) -> dict[str, Any]:
    """Of an evaluation of `drafters` (by label) with `target`.

    Raises: as target_facts.
    """
    known = {
        label: {
            "config": described(found.config),
            "weights": weights_digest(found.state),
            "precision": precision(found.state),
        }
        for label, found in drafters.items()
    }
    return {"target_digest": target_facts(target).digest, "drafters": known}


def weights_digest(state: Mapping[str, Tensor]) -> str:
    """24 hex digits of every name, dtype, shape and number."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:24]


def other_than(
    evaluated: Mapping[str, Any],
    trained: TrainedDrafter,
    target: TargetFacts | None,
    dtype: torch.dtype | None,
) -> list[str]:
    """How `evaluated` (the JSON of `evaluate`) is of something else than `trained`, exported in `dtype`.

    A JSON of an earlier version has no identity: what it says is compared, the rest is believed.
    """
    known = evaluated.get("identity") or {}
    found: list[str] = []
    for drafter in (known.get("drafters") or {}).values():
        found += differing(drafter["config"], described(trained.config), "there", "in this drafter")
        if not found and not _has_weights(trained.state, drafter, dtype):
            found.append("other weights")
    if evaluated["block_size"] > trained.config.block_size:
        found.append(f"blocks of {evaluated['block_size']}, {trained.config.block_size} in this drafter")
    return found + _other_target(evaluated["target"], known.get("target_digest"), trained, target)


def _has_weights(state: Mapping[str, Tensor], drafter: Mapping[str, Any], dtype: torch.dtype | None) -> bool:
    """As they are about to be written, or in the precision that was evaluated."""
    evaluated = getattr(torch, drafter["precision"], None)  # None where the folder mixes two
    for kind in dict.fromkeys((dtype, evaluated)):
        with suppress(ValueError):  # infinite in that precision: no folder in it came from these weights
            if weights_digest(rounded(state, kind)) == drafter["weights"]:
                return True
    return False


def _other_target(
    name: str, digest: str | None, trained: TrainedDrafter, target: TargetFacts | None
) -> list[str]:
    """By digest where both are known; else by name, which may differ for one and the same target."""
    ours = (trained.run.target_digest if trained.run else None) or (target.digest if target else None)
    if digest and ours:
        return [] if digest == ours else [f"target {name} of digest {digest}, {ours} for this drafter"]
    names = [known for known in (trained.target, target.name if target else None) if known]
    if not names or any(_is_one_place(name, known) for known in names):
        return []
    return [f"target {name}, {' or '.join(dict.fromkeys(names))} for this drafter"]


def _is_one_place(one: str, other: str) -> bool:
    return one == other or (Path(one).is_dir() and Path(one).resolve() == Path(other).resolve())
