"""Where blocks start: a sample's anchors for one epoch.

in    loss mask [S] of a sample, how many anchors, and (seed, epoch, sample id)
out   sorted positions
law   a pure function of its arguments: rank, worker, step, resume and padding cannot change the draw
"""

import numpy as np
import numpy.typing as npt

from dflash_lightning.plan.rng import hash_ids, key

IntArray = npt.NDArray[np.int64]


def valid_anchors(loss_mask: npt.NDArray[np.generic]) -> IntArray:
    """Positions that are supervised and whose successor is, too: slot 1 of every block has a label.

    The first token of an answer qualifies (decoding starts there), the last token of a turn does not: what
    follows it is not drafted. Blocks may reach past the end. Source: spec/dflash.md 2.4.
    """
    supervised = loss_mask.astype(bool)
    return np.flatnonzero(supervised[:-1] & supervised[1:]).astype(np.int64)


def draw_anchors(
    loss_mask: npt.NDArray[np.generic], num_anchors: int, *, seed: int, epoch: int, sample_id: int
) -> IntArray:
    """Up to `num_anchors` of the valid anchors, without replacement, ascending; all if there are fewer.

    Every position gets a hash keyed by (seed, epoch, sample id); the smallest hashes win.
    """
    positions = valid_anchors(loss_mask)
    if len(positions) <= num_anchors:
        return positions
    rank = hash_ids(key("anchors", seed, epoch, sample_id), positions)
    return np.sort(positions[np.argsort(rank, kind="stable")[:num_anchors]])
