"""How many humps the distribution of a curve has (Silverman's test).

in    values [n] around 0
out   number of modes, 1 where one is enough

Silverman 1981, "Using kernel density estimates to investigate multimodality": the bandwidth at which a
density of the data just has k humps is compared with what samples of that smooth density need.
"""

import numpy as np

from dflash_lightning.report.run import FloatArray

GRID = 256
MOST_VALUES = 1_500
"""More values are thinned: the test needs no more, and its time grows."""
SAMPLES = 99
P_VALUE = 0.01
"""k humps are refused if fewer than this share of smooth samples need a bandwidth as wide."""
MOST_MODES = 5
TAIL = 0.01
"""This share is cut on both sides: a lone outlier is no mode."""
LEAST_MASS = 0.04
"""A hump with a smaller share of the values is none."""


def count_modes(values: FloatArray) -> int:
    """1 for a single hump, up to MOST_MODES."""
    low, high = np.quantile(values, [TAIL, 1 - TAIL])
    kept = values[(values >= low) & (values <= high)]
    kept = kept[np.linspace(0, len(kept) - 1, min(len(kept), MOST_VALUES)).astype(int)]
    if len(kept) < 20 or np.ptp(kept) == 0:
        return 1
    rng = np.random.default_rng(0)
    for modes in range(1, MOST_MODES):
        width = critical_width(kept, modes)
        needing_more = [humps(_smooth_sample(kept, width, rng), width) > modes for _ in range(SAMPLES)]
        if np.mean(needing_more) > P_VALUE:
            return modes
    return MOST_MODES


def critical_width(values: FloatArray, modes: int) -> float:
    """The smallest bandwidth at which the density has at most `modes` humps."""
    low, high = 0.0, float(np.ptp(values))
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if humps(values, middle) <= modes else (middle, high)
    return high


def _smooth_sample(values: FloatArray, width: float, rng: np.random.Generator) -> FloatArray:
    """A bootstrap sample of the smooth density, shrunk so that its variance is that of the values."""
    drawn = rng.choice(values, len(values))
    noisy = drawn - values.mean() + width * rng.standard_normal(len(values))
    return np.asarray(values.mean() + noisy / np.sqrt(1 + width**2 / values.var()), np.float64)


def humps(values: FloatArray, width: float) -> int:
    """Humps of the Gaussian kernel density that hold at least LEAST_MASS each."""
    pad = 3 * width
    low, high = values.min() - pad, values.max() + pad
    counts, edges = np.histogram(values, GRID, (low, high))
    frequencies = np.fft.rfftfreq(GRID, edges[1] - edges[0])
    smooth = np.exp(-2 * (np.pi * frequencies * width) ** 2)
    density = np.fft.irfft(np.fft.rfft(counts) * smooth, GRID)
    slope = np.sign(np.diff(density))
    slope = slope[slope != 0]
    valleys = np.flatnonzero((slope[:-1] < 0) & (slope[1:] > 0)) + 1
    masses = [part.sum() for part in np.split(density, valleys)]
    return sum(mass >= LEAST_MASS * len(values) for mass in masses)
