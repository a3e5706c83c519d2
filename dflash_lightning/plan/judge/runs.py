"""How batches of one bucket follow each other.

in    labels [N]: the bucket of each batch, in order
out   RunFacts
law   the lengths of the runs add up to N, and N - number of runs pairs of neighbours are equal
"""

from dataclasses import dataclass

import numpy as np

from dflash_lightning.plan.samples import IntArray

RUN_BINS = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 9), (10, None))
"""Run lengths that are told apart, both ends included (spec/batching.md section 2.1)."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """An order's runs: stretches of batches that all come from one bucket."""

    longest_run: int
    """Most batches of one bucket in a row."""
    final_run: int
    """Batches of one bucket in a row at the end of the epoch."""
    final_bucket: int
    equal_neighbours: int
    """Pairs of neighbouring batches of one bucket."""
    forced_neighbours: int
    """Such pairs that no order could avoid."""
    alternating_share: float
    """Share of the stretches of four batches that read ABAB."""
    largest_bucket: int
    """The bucket with most batches."""
    largest_in_runs: tuple[int, ...]
    """Batches of the largest bucket that sit in runs of each of RUN_BINS."""


def run_lengths(labels: IntArray) -> IntArray:
    """[N] labels -> [runs] batches in each run, in order: (1, 1, 0, 1) -> (2, 1, 1)."""
    return np.diff(_run_borders(labels))


def judge_runs(labels: IntArray, num_buckets: int) -> RunFacts:
    """The facts of at least one batch's labels."""
    borders = _run_borders(labels)
    lengths = np.diff(borders)
    counts = np.bincount(labels, minlength=num_buckets)
    largest = int(counts.argmax())
    return RunFacts(
        longest_run=int(lengths.max()),
        final_run=int(lengths[-1]),
        final_bucket=int(labels[-1]),
        equal_neighbours=len(labels) - len(lengths),
        forced_neighbours=max(0, 2 * int(counts[largest]) - len(labels) - 1),
        alternating_share=_alternating_share(labels),
        largest_bucket=largest,
        largest_in_runs=_batches_by_run(lengths[labels[borders[:-1]] == largest]),
    )


def _run_borders(labels: IntArray) -> IntArray:
    """[runs + 1] where each run begins, and the number of batches."""
    return np.flatnonzero(np.diff(labels, prepend=-1, append=-1))


def _batches_by_run(lengths: IntArray) -> tuple[int, ...]:
    return tuple(
        int(lengths[(lengths >= low) & (lengths <= (high or lengths.max(initial=0)))].sum())
        for low, high in RUN_BINS
    )


def _alternating_share(labels: IntArray) -> float:
    if len(labels) < 4:
        return 0.0
    same_but_one = labels[:-2] == labels[2:]
    alternating = same_but_one[:-1] & same_but_one[1:] & (labels[:-3] != labels[1:-2])
    return float(alternating.mean())
