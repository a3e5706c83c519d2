"""Names the levels that a loss jumps between.

in    levels [K] with a name each, the spread inside them
out   bands: neighbouring levels told as one
"""

from collections.abc import Sequence

import numpy as np

from dflash_lightning.report.run import FloatArray

APART = 2.0
"""Two levels are two bands if they lie more than this many inner deviations apart,"""
OF_RANGE = 0.1
"""and more than this share of the whole range."""
WORDS = ("no", "one", "two", "three", "four", "five", "six")


def bands(levels: FloatArray, within: float) -> list[list[int]]:
    """Groups of indices into `levels`, from the lowest band to the highest."""
    order = np.argsort(levels, kind="stable")
    gap = max(APART * within, OF_RANGE * float(np.ptp(levels)))
    cuts = np.flatnonzero(np.diff(levels[order]) > gap) + 1
    return [sorted(part.tolist()) for part in np.split(order, cuts)]


def tell_bands(levels: FloatArray, within: float, names: Sequence[str]) -> str:
    """As "three bands: 0.55 (bucket 0), 1.00 (buckets 1-4), 1.60 (bucket 5)".

    Of levels that lie too close for bands, the range.
    """
    found = bands(levels, within)
    if len(found) == 1 and len(levels) > 1:
        low, high = int(np.argmin(levels)), int(np.argmax(levels))
        return f"levels from {levels[low]:.2f} ({names[low]}) to {levels[high]:.2f} ({names[high]})"
    told = [f"{np.mean(levels[band]):.2f} ({_members(band, names)})" for band in found]
    count = WORDS[len(found)] if len(found) < len(WORDS) else str(len(found))
    return f"{count} band{'s' * (len(found) != 1)}: {', '.join(told)}"


def _members(band: Sequence[int], names: Sequence[str]) -> str:
    mine = [names[i] for i in band]
    numbers = [name.removeprefix("bucket ") for name in mine]
    if len(mine) == 1 or not all(number.isdigit() for number in numbers):
        return " and ".join(mine)
    whole = [int(number) for number in numbers]
    if whole == list(range(whole[0], whole[-1] + 1)):
        return f"buckets {whole[0]}-{whole[-1]}"
    return f"buckets {', '.join(numbers)}"
