"""Fewer points, nothing hidden: long series are drawn as the lowest and highest value of each stretch.

in    steps, values [n], NaN where nothing was logged
out   envelope (at most 2 x bins + 2 real points), sample, spread (quantiles), own_band, means
law   the envelope's minimum, maximum, first and last point are the series' own: a spike never vanishes
"""

from dataclasses import dataclass

import numpy as np

from dflash_lightning.report.run import FloatArray


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A series summarised per stretch; all arrays have one entry per stretch that holds a value."""

    steps: FloatArray
    """Mean step of the stretch."""
    low: FloatArray
    middle: FloatArray
    """Median."""
    high: FloatArray


def finite(steps: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The points that can be drawn."""
    there = np.isfinite(steps) & np.isfinite(values)
    return steps[there], values[there]


def envelope(steps: FloatArray, values: FloatArray, bins: int) -> tuple[FloatArray, FloatArray]:
    """The finite points if they are few, else the lowest and highest of each of `bins` equal stretches,
    with the first and the last point, in order of time.

    Args:
        steps: [n], not decreasing.
        values: [n]
        bins: Stretches of equally many points.
    """
    steps, values = finite(steps, values)
    if len(values) <= 2 * bins:
        return steps, values
    stretches = np.array_split(np.arange(len(values)), bins)
    kept = {0, len(values) - 1}
    for stretch in stretches:
        kept |= {int(stretch[values[stretch].argmin()]), int(stretch[values[stretch].argmax()])}
    order = np.array(sorted(kept))
    return steps[order], values[order]


def spread(steps: FloatArray, values: FloatArray, bins: int) -> Spread:
    """10th, 50th and 90th percentile of each of at most `bins` stretches of equally many finite points."""
    steps, values = finite(steps, values)
    stretches = np.array_split(np.arange(len(values)), min(bins, len(values))) if len(values) else []
    middle = np.array([steps[stretch].mean() for stretch in stretches])
    quantiles = np.array([np.quantile(values[s], (0.1, 0.5, 0.9)) for s in stretches]).reshape(-1, 3)
    return Spread(steps=middle, low=quantiles[:, 0], middle=quantiles[:, 1], high=quantiles[:, 2])


def own_band(steps: FloatArray, values: FloatArray, stretches: int) -> Spread:
    """What is usual for a series: its trend, and three times its noise on both sides of it.

    The trend is the median of each of `stretches`, the noise 1.4826 x the median distance from the trend,
    over a quarter of the series at a time: neither follows a spike.
    """
    steps, values = finite(steps, values)
    trend = spread(steps, values, stretches)
    apart = np.abs(values - np.interp(steps, trend.steps, trend.middle))
    noise = spread(steps, apart, min(4, max(1, len(values) // 20)))
    reach = 3 * 1.4826 * np.interp(trend.steps, noise.steps, noise.middle)
    return Spread(steps=trend.steps, low=trend.middle - reach, middle=trend.middle, high=trend.middle + reach)


def means(steps: FloatArray, values: FloatArray, bins: int) -> tuple[FloatArray, FloatArray]:
    """Mean step and mean value of at most `bins` stretches of equally many finite points.

    For shares that are stacked: means add up where medians do not.
    """
    steps, values = finite(steps, values)
    stretches = np.array_split(np.arange(len(values)), min(bins, len(values))) if len(values) else []
    return np.array([steps[s].mean() for s in stretches]), np.array([values[s].mean() for s in stretches])


def sample(steps: FloatArray, values: FloatArray, limit: int) -> tuple[FloatArray, FloatArray]:
    """At most about `limit` of the finite points, for a cloud of dots: every n-th, and every stretch's
    lowest and highest."""
    steps, values = finite(steps, values)
    if len(values) <= limit:
        return steps, values
    every = np.linspace(0, len(values) - 1, limit // 2).astype(np.int64)
    ends_x, ends_y = envelope(steps, values, max(1, limit // 4))
    order = np.argsort(np.concatenate([steps[every], ends_x]), kind="stable")
    return np.concatenate([steps[every], ends_x])[order], np.concatenate([values[every], ends_y])[order]
