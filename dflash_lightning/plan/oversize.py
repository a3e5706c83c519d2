"""Samples that no batch takes: the oversize ones, refused before any work on a device unless the user chose
otherwise, and those below the least length.

in    Samples, PlanConfig
out   which samples are left out of the plan
"""

import numpy as np
import numpy.typing as npt

from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan.samples import Samples

BoolArray = npt.NDArray[np.bool_]
_NAMED_IDS = 5


def left_out(samples: Samples, config: PlanConfig) -> BoolArray:
    """[n] which samples are in no batch. Raises: ValueError where that is all of them, and see `oversize`."""
    too_long = oversize(samples, config)
    out = samples.lengths < config.min_length
    num_short, num_long = int(out.sum()), int(too_long.sum())
    if config.oversize == "drop":
        out |= too_long
    if out.all():
        raise ValueError(_nothing_left(num_short, num_long, config))
    return out


def _nothing_left(num_short: int, num_long: int, config: PlanConfig) -> str:
    if not num_short:
        return (
            f"plan.oversize drop leaves no sample: all {num_long} are longer than {config.longest} tokens; "
            "raise plan.edges and plan.max_tokens, or set plan.oversize to truncate"
        )
    long = f", and plan.oversize drop the {num_long} longer than {config.longest}" if num_long else ""
    return (
        f"no sample is left: plan.min_length leaves out the {num_short} shorter than {config.min_length} "
        f"tokens{long}; lower plan.min_length"
    )


def oversize(samples: Samples, config: PlanConfig) -> BoolArray:
    """[n] which samples are too long for any batch; refused unless the user chose what becomes of them."""
    if not len(samples):
        raise ValueError(
            "no samples to plan: the split is empty; prepare a token store with at least one row"
        )
    too_long = samples.lengths > config.longest
    count = int(too_long.sum())
    if count and config.oversize == "error":
        first = np.flatnonzero(too_long)[:_NAMED_IDS]
        named = ", ".join(f"{i} ({samples.lengths[i]} tokens)" for i in first)
        raise ValueError(
            f"{count} of {len(samples)} samples are longer than {config.longest} tokens, {_limit(config)}: "
            f"sample {named}{', ...' if count > _NAMED_IDS else ''}; "
            "raise it, or set plan.oversize to drop or truncate"
        )
    return too_long


def _limit(config: PlanConfig) -> str:
    """What `config.longest` comes from."""
    if not isinstance(config.edges, str):
        rounded = config.longest > config.edges[-1]
        return f"the last of plan.edges{', rounded up to plan.pad_multiple' if rounded else ''}"
    if config.longest == config.max_tokens:
        return "plan.max_tokens"
    return (
        f"the most that plan.max_tokens {config.max_tokens} leaves to one row with plan.quadratic_budget and "
        "plan.pad_multiple"
    )
