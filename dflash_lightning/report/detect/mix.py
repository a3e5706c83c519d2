"""Verdict "mix": the curve moves because its batches come from different buckets.

in    Splits of single batches and of windows
out   Verdict or None
"""

import numpy as np

from dflash_lightning.report.detect.bands import tell_bands
from dflash_lightning.report.detect.split import Split
from dflash_lightning.report.kinds import Verdict

MIX_SHARE = 0.5
"""From this share of the variance on, "it is the mix" is the better half of the truth."""
VISIBLE = 0.01
"""Movement below this share of the loss is no movement to explain."""


def is_mix(split: Split | None) -> bool:
    """Whether most of a visible movement goes with the mix."""
    if split is None or len(split.movement) == 0:
        return False
    visible = split.jitter >= VISIBLE * abs(float(np.mean(split.levels)))
    return visible and split.mix_share >= MIX_SHARE


def mix(single: Split | None, windows: Split | None) -> Verdict | None:
    """Single batches are told of first where both are known: they are what jumps most."""
    main = next((split for split in (single, windows) if is_mix(split)), None)
    if main is None:
        return None
    of = "single batches" if main is single else "the window curve"
    what = main.names[0].split()[-1] if main.names[0].endswith("tokens") else "bucket"
    cause = "how long its samples are" if what == "tokens" else "which bucket a batch comes from"
    headline = f"mix: {main.mix_share:.0%} of the movement of {of} is {cause}; {_bands(main)}"
    evidence = [
        f"values differ by {main.jitter:.3g} as logged and by {main.jitter_within:.3g} without the mix"
        " (standard deviations)"
    ]
    if main is single and windows is not None:
        evidence.append(
            f"per optimizer step the loss moves by {windows.jitter:.3g} only, "
            f"{windows.mix_share:.0%} of it mix"
        )
    evidence.append(
        "levels of lengths that keep their distance are harmless; watch each bucket against itself"
    )
    return Verdict("mix", headline, evidence)


def _bands(split: Split) -> str:
    return tell_bands(split.levels, split.jitter_within, split.names)
