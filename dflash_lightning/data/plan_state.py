"""What a checkpoint or another rank knows of the plan, and the refusal of another one.

law   equal digests <=> the same samples in the same batches in the same order, with the same anchors
"""

from collections.abc import Sequence
from typing import Any

from dflash_lightning.data.epochs import PlannedEpochs, Position
from dflash_lightning.data.store import TokenStore
from dflash_lightning.differing import differing
from dflash_lightning.plan.config import config_facts


def saved_plan(epochs: PlannedEpochs, position: Position, store: TokenStore) -> dict[str, Any]:
    """Plain Python: the digest that decides, and the settings behind it so that a refusal can name them."""
    return {
        "digest": epochs.plan(position.epoch).digest,
        "settings": {
            "store": store.manifest.digest,
            "samples": len(epochs.samples.lengths),
            "seed": epochs.seed,
            "num_anchors": epochs.num_anchors,
            "block_size": epochs.block_size,
            **{f"plan.{key}": value for key, value in config_facts(epochs.config).items()},
        },
    }


def require_same_plan(saved: dict[str, Any], ours: dict[str, Any]) -> None:
    """Raises ValueError naming both digests and every setting that differs."""
    differences = differing(saved["settings"], ours["settings"], "in the checkpoint", "here")
    if saved["digest"] != ours["digest"] or differences:
        raise ValueError(
            f"the checkpoint was trained on plan {saved['digest']}, but these settings give plan "
            f"{ours['digest']} ({'; '.join(differences) or 'another version of the planner'}). "
            "Batch order affects the whole trajectory, so this is not the same run: resume with the "
            "checkpoint's settings, or start a fresh run, from its exported weights if you like "
            "(model.init_from)"
        )


def require_ranks_agree(plans: Sequence[dict[str, Any]]) -> None:
    """Raises ValueError where a rank has another plan than rank 0; `plans[r]` is rank r's saved_plan."""
    first = plans[0]
    for rank, other in enumerate(plans):
        if other["digest"] != first["digest"]:
            settings = first["settings"], other["settings"]
            differences = "; ".join(differing(*settings, "on rank 0", f"on rank {rank}"))
            raise ValueError(
                f"ranks disagree about the plan: {first['digest']} on rank 0, {other['digest']} on "
                f"rank {rank} ({differences or 'equal settings: another version of the planner'}); "
                "give all nodes the same token store, settings and version"
            )
