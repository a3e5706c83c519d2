"""How many humps the distribution of a curve has (Silverman's test).

in    values [n] around 0
out   number of modes, 1 where one is enough

Silverman 1981, "Using kernel density estimates to investigate multimodality": the bandwidth at which a
density of the data just has k humps is compared with what samples of that smooth density need.
"""

import numpy as np

from dflash_lightning.report.run import FloatArray, IntArray

GRID = 256
MOST_VALUES = 1_500
"""More values are thinned: the test needs no more, and its time grows."""
SAMPLES = 99
P_VALUE = 0.005
"""k humps are refused if no larger share of smooth samples needs a bandwidth as wide: with 99, none may."""
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
        needing_more = humps(_smooth_samples(kept, width, rng), width) > modes
        if np.mean(needing_more) > P_VALUE:
            return modes
    return MOST_MODES


def critical_width(values: FloatArray, modes: int) -> float:
    """The smallest bandwidth at which the density has at most `modes` humps."""
    low, high = 0.0, float(np.ptp(values))
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (low, middle) if humps(values[None], middle)[0] <= modes else (middle, high)
    return high


def _smooth_samples(values: FloatArray, width: float, rng: np.random.Generator) -> FloatArray:
    """[SAMPLES, n] bootstrap samples of the smooth density, shrunk to the variance of the values."""
    shape = (SAMPLES, len(values))
    noisy = rng.choice(values, shape) - values.mean() + width * rng.standard_normal(shape)
    return np.asarray(values.mean() + noisy / np.sqrt(1 + width**2 / values.var()), np.float64)


def humps(samples: FloatArray, width: float) -> IntArray:
    """[S] for samples [S, n]: humps of the Gaussian kernel density that hold at least LEAST_MASS each."""
    low, high = samples.min() - 3 * width, samples.max() + 3 * width
    cell = (high - low) / GRID
    cells = np.minimum((samples - low) / cell, GRID - 1).astype(np.int64)
    rows = np.arange(len(samples))[:, None] * GRID
    counts = np.bincount((rows + cells).ravel(), minlength=len(samples) * GRID).reshape(-1, GRID)
    smooth = np.exp(-2 * (np.pi * np.fft.rfftfreq(GRID, cell) * width) ** 2)
    densities = np.fft.irfft(np.fft.rfft(counts) * smooth, GRID)
    return np.array([_humps(density, LEAST_MASS * samples.shape[1]) for density in densities], np.int64)


def _humps(density: FloatArray, least: float) -> int:
    slope = np.diff(density)
    valleys = np.flatnonzero((slope[:-1] < 0) & (slope[1:] > 0)) + 1
    masses = np.add.reduceat(density, np.concatenate(([0], valleys)))
    return int((masses >= least).sum())
