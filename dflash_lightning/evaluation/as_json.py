"""An evaluation for programs: plain values that json.dumps takes.

in    Evaluation
out   dictionaries, lists, numbers; shares are 0 to 1, times seconds
law   a figure that is not finite is null: JSON has no NaN
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dflash_lightning.decoding.acceptance import AcceptanceLength
from dflash_lightning.decoding.stage_times import StageTime
from dflash_lightning.evaluation.figures import Figures, Part
from dflash_lightning.evaluation.finite import finite
from dflash_lightning.evaluation.result import Comparison, Evaluation


def as_values(found: Evaluation, identity: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`categories` have the form of `all`, without the times of stages; `compared` is B less A.

    Args:
        identity: of export/identity.py: which drafters and which target these are, whatever their names.
    """
    values: dict[str, Any] = finite(_values(found) | {"identity": identity})
    return values


def _values(found: Evaluation) -> dict[str, Any]:
    return {
        "target": found.target,
        "drafters": dict(found.drafters),
        "dtype": found.dtype,
        "device": found.device,
        "block_size": found.block_size,
        "max_new_tokens": found.max_new_tokens,
        "prompts_per_pass": found.batch_size,
        "sampling": None if found.sampling is None else asdict(found.sampling),
        "chats": asdict(found.chats),
        "all": part_values(found.whole),
        "categories": {part.category: part_values(part) for part in found.parts[1:]},
        "compared": {one.kind: comparison_values(one) for one in found.comparisons},
    }


def part_values(part: Part) -> dict[str, Any]:
    return {
        "prompts": part.prompts,
        "methods": {figures.name: method_values(figures) for figures in part.methods},
        "prompt_lookup": acceptance_values(part.lookup),
    }


def method_values(figures: Figures) -> dict[str, Any]:
    return {
        **acceptance_values(figures.acceptance),
        "rounds_by_tokens": list(figures.histogram),
        "slot_acceptance": list(figures.slots),
        "new_tokens": figures.new_tokens,
        "seconds": figures.seconds,
        "tokens_per_s": figures.tokens_per_s,
        "speed_up": figures.speed_up,
        "equal_texts": figures.equal_texts,
        **(stage_values(figures.stages) if figures.stages else {}),
    }


def stage_values(stages: Mapping[str, StageTime]) -> dict[str, dict[str, Any]]:
    """Of prefill, draft and verify; a call is one pass, for all prompts that share it."""
    return {
        "stage_shares": {stage: spent.share for stage, spent in stages.items()},
        "stage_seconds": {stage: spent.seconds for stage, spent in stages.items()},
        "stage_calls": {stage: spent.calls for stage, spent in stages.items()},
    }


def acceptance_values(acceptance: AcceptanceLength) -> dict[str, Any]:
    """tau_pooled: tokens over rounds. tau_mean: mean over prompts of each prompt's own."""
    return {
        "rounds": acceptance.rounds,
        "tau_pooled": acceptance.pooled,
        "tau_mean": acceptance.mean,
        "tau_first32_pooled": acceptance.first32,
    }


def comparison_values(one: Comparison) -> dict[str, Any]:
    return {**asdict(one.tau), "decided": one.tau.decided, "speed_ratio": one.speed_ratio}
