"""Series of a run as figures need them.

in    Run
out   series by name, buckets, whether anything was logged under a name
law   what is returned is finite and in order of steps; nothing is made up where a value is absent
"""

import re

import numpy as np

from dflash_lightning.report.figures.thin import finite
from dflash_lightning.report.run import UNKNOWN_BUCKET, FloatArray, Run

Series = tuple[FloatArray, FloatArray]
"""(steps, values), equally long."""


def series(run: Run, name: str) -> Series:
    """A training value, or empty arrays."""
    if name not in run.values:
        return np.empty(0), np.empty(0)
    return finite(run.steps, run.values[name])


def val_series(run: Run, name: str) -> Series:
    """A validation value, or empty arrays."""
    if name not in run.validation:
        return np.empty(0), np.empty(0)
    return finite(run.val_steps, run.validation[name])


def has(run: Run, *names: str) -> bool:
    """Whether any of the names holds a value."""
    return any(len(series(run, name)[0]) or len(val_series(run, name)[0]) for name in names)


def numbered(run: Run, pattern: str) -> dict[int, Series]:
    """Values whose name has a number, by the number: `loss/bucket_{i}`."""
    parts = re.compile(re.escape(pattern).replace(re.escape("{i}"), r"(\d+)"))
    found = {int(match[1]): match[0] for name in run.values if (match := parts.fullmatch(name))}
    every = {index: series(run, name) for index, name in sorted(found.items())}
    return {index: points for index, points in every.items() if len(points[0])}


def grouped(run: Run, prefix: str) -> dict[str, Series]:
    """Values by what stands behind the prefix: `grad_norm/{group}`."""
    names = {name.removeprefix(prefix): name for name in sorted(run.values) if name.startswith(prefix)}
    every = {group: series(run, name) for group, name in names.items()}
    return {group: points for group, points in every.items() if len(points[0])}


def micro_buckets(run: Run) -> list[int]:
    """Buckets of the logged micro-batches; empty without such a log or without tags."""
    if run.micro is None:
        return []
    return [int(bucket) for bucket in np.unique(run.micro.bucket) if bucket != UNKNOWN_BUCKET]


def num_buckets(run: Run) -> int:
    """How many buckets the run's logs name."""
    named = [index for pattern in _PER_BUCKET for index in numbered(run, pattern)]
    return max([*named, *micro_buckets(run), -1]) + 1


_PER_BUCKET = ("loss/bucket_{i}", "batch/bucket_{i}_pct", "acceptance/bucket_{i}")
