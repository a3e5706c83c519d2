"""Synthetic lengths that reproduce the figures of the documented run (spec/batching.md section 1).

in    number of samples, seed
out   Samples; with EDGES, a budget of 49,152 tokens and 64 rows they give the published batch counts
law   the fit is to six published numbers; what lies inside a bucket is a guess
"""

import numpy as np

from dflash_lightning.plan import Samples

EDGES = (1216, 1728, 2240, 2784, 3296, 8192)
LARGEST = len(EDGES) - 1
"""The bucket with most batches."""
SHARES = (0.3019, 0.1280, 0.1245, 0.1225, 0.1211, 0.2020)
DOCUMENTED_SAMPLES = 905_600
SUPERVISED_SHARE = 0.7
ANCHORS = {"num_anchors": 512, "block_size": 16}


def documented_mix(num_samples: int = DOCUMENTED_SAMPLES, *, seed: int = 0) -> Samples:
    """Lengths with the bucket shares of the documented run, 2,468 tokens on average."""
    rng = np.random.default_rng(seed)
    bucket = rng.choice(len(SHARES), num_samples, p=np.array(SHARES) / sum(SHARES))
    edges = np.array((0, *EDGES))
    lengths = rng.integers(edges[bucket] + 1, edges[bucket + 1], endpoint=True)
    shortest, longest = bucket == 0, bucket == len(EDGES) - 1
    lengths[shortest] = _lognormal(rng, int(shortest.sum()), np.log(330), 0.30, low=0, high=EDGES[0])
    lengths[longest] = _lognormal(rng, int(longest.sum()), 8.55, 0.45, low=EDGES[-2], high=EDGES[-1])
    lengths[longest & (rng.random(num_samples) < 0.3)] = EDGES[-1]  # cut when they were tokenized
    return Samples(lengths, np.maximum(1, (SUPERVISED_SHARE * lengths).astype(np.int64)))


def _lognormal(
    rng: np.random.Generator, count: int, mean: float, sigma: float, *, low: int, high: int
) -> np.ndarray:
    """Integers in (low, high]; what falls outside is drawn again."""
    kept = np.empty(0, np.int64)
    while len(kept) < count:
        drawn = np.ceil(rng.lognormal(mean, sigma, 2 * count)).astype(np.int64)
        kept = np.concatenate((kept, drawn[(drawn > low) & (drawn <= high)]))
    return kept[:count]
