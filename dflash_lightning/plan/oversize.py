"""Samples too long for any batch: refused before any work on a device, unless the user chose otherwise.

in    Samples, PlanConfig
out   which samples are longer than a batch can hold
"""

import numpy as np
import numpy.typing as npt

from dflash_lightning.plan.config import PlanConfig
from dflash_lightning.plan.samples import Samples

BoolArray = npt.NDArray[np.bool_]
_NAMED_IDS = 5


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
        rule = "plan.max_tokens" if isinstance(config.edges, str) else "the last of plan.edges"
        raise ValueError(
            f"{count} of {len(samples)} samples are longer than {config.longest} tokens, {rule}: "
            f"sample {named}{', ...' if count > _NAMED_IDS else ''}; "
            "raise it, or set plan.oversize to drop or truncate"
        )
    if count == len(samples) and config.oversize == "drop":
        raise ValueError(
            f"plan.oversize drop leaves no sample: all {count} are longer than {config.longest} tokens; "
            "raise plan.edges and plan.max_tokens, or set plan.oversize to truncate"
        )
    return too_long
