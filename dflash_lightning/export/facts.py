"""What a checkpoint says about the run that wrote it, for the model card.

in    the content of a .ckpt file, its path, and the metrics of its manifest where it came from a store
out   RunFacts
law   a fact that is not in the file is None or left out: nothing is guessed, and no figure of other weights
      than these is taken
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """A training run up to the checkpoint."""

    target_digest: str | None = None
    """Of the target in training (target/identity.py)."""
    steps: int | None = None
    """Optimizer steps."""
    epochs: int | None = None
    """Whole epochs over the data."""
    tokens: int | None = None
    """Real tokens trained on, repeats counted."""
    samples: int | None = None
    """Conversations in the token store."""
    store: str | None = None
    """Digest of the token store."""
    plan: str | None = None
    """Digest of the plan of `plan_epoch`: which sample came when."""
    plan_epoch: int | None = None
    """Epoch that the checkpoint stands in, from 0: each epoch has a plan of its own."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """As the checkpoint lists them."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Validation figures of these very weights: val/tau and others."""
    digest: str | None = None
    """Of drafter config and settings, 24 hex digits: two cards with one digest are of runs set up alike."""


def run_facts(content: Mapping[str, Any], path: Path, metrics: Mapping[str, float] | None = None) -> RunFacts:
    """`content`: a checkpoint with a `dflash` entry; `metrics`: of its manifest in a store."""
    data = content.get("DFlashDataModule") or {}
    position = data.get("position") or {}
    plan = data.get("plan") or {}
    planned = plan.get("settings") or {}
    ours = content["dflash"]
    settings = ours.get("settings") or {}
    return RunFacts(
        target_digest=ours.get("target_digest"),
        steps=position.get("steps"),
        epochs=position.get("epoch"),
        tokens=(ours.get("logged") or {}).get("tokens"),
        samples=planned.get("samples"),
        store=planned.get("store"),
        plan=plan.get("digest"),
        plan_epoch=position.get("epoch"),
        settings={
            **settings,
            **{f"data.{k}": planned[k] for k in ("num_anchors", "seed", "plan.order") if k in planned},
        },
        metrics={k: v for k, v in (metrics or _best_score(content, path)).items() if k.startswith("val/")},
        digest=settings_digest(ours["drafter"], settings) if settings else None,
    )


def settings_digest(drafter: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    text = json.dumps({"drafter": drafter, "settings": settings}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _best_score(content: Mapping[str, Any], path: Path) -> dict[str, float]:
    """The score of the checkpoint that ModelCheckpoint wrote under this file's name as its best.

    In any other file the callback's score may be that of other weights.
    """
    for state in (content.get("callbacks") or {}).values():
        if not isinstance(state, Mapping) or state.get("monitor") is None:
            continue
        if Path(str(state.get("best_model_path"))).name == path.name:
            return {str(state["monitor"]): float(state["best_model_score"])}
    return {}
