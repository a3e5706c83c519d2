"""What an optimizer window held, over all ranks.

law   computed from the plan, which every rank knows: no communication, and nothing that was only prefetched
      counts
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dflash_lightning.plan.windows import Window

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WindowFacts:
    """One entry per batch of the window, ranks together: entry m * world + r is micro-step m of rank r. Ghost
    rows are in none of the counts."""

    bucket: IntArray
    samples: IntArray
    tokens: IntArray
    """Real tokens."""
    padded_tokens: IntArray
    padded_length: IntArray
    """Tokens to which each row is padded; also where all rows are ghosts."""
    longest: IntArray
    """Longest real sample, in tokens."""


def window_facts(window: Window, lengths: IntArray) -> WindowFacts:
    """Count `window` with `lengths` [samples], the real tokens of every sample of the store."""
    rows = []
    for batch in (batch for ranks in window.batches for batch in ranks):
        real = np.minimum(lengths[batch.sample_ids[batch.sample_ids >= 0]], batch.padded_length)
        padded = len(real) * batch.padded_length
        longest = real.max(initial=0)
        rows.append((batch.bucket, len(real), real.sum(), padded, batch.padded_length, longest))
    return WindowFacts(*np.array(rows, np.int64).reshape(-1, 6).T)
