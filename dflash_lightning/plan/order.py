"""Stage 3: the queues of the buckets -> one order of batches.

in    counts [K]: batches waiting in each bucket's queue; a key
out   labels [N]: which bucket's queue is served at each step
law   label b occurs counts[b] times
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import add

import numpy as np

from dflash_lightning.plan.rng import draws, permutation
from dflash_lightning.plan.samples import IntArray


class Order(ABC):
    """In which order the batches of different buckets come."""

    @abstractmethod
    def labels(self, counts: Sequence[int], *, key: int) -> IntArray:
        """Queue lengths -> the bucket served at each of the sum(counts) steps."""


@dataclass(frozen=True)
class Credit(Order):
    """Serve the bucket that is owed most: the mix is the same in every stretch of the epoch.

    At each step bucket b earns counts[b] units and a batch costs N = sum(counts) of them. A bucket that is
    owed a whole batch goes first; else one with positive credit is drawn, weighted by it, and not the last
    one again if another has credit. Every credit stays within (-1, K - 1) batches: credits sum to zero and
    only positive ones are spent. Integers only, so nothing drifts (spec/batching.md section 2).
    """

    def labels(self, counts: Sequence[int], *, key: int) -> IntArray:
        return np.fromiter(_by_credit(counts, key), np.int64, sum(counts))


@dataclass(frozen=True)
class Shuffle(Order):
    """All batches in one random order."""

    def labels(self, counts: Sequence[int], *, key: int) -> IntArray:
        sorted_labels = np.repeat(np.arange(len(counts)), counts)
        return sorted_labels[permutation(key, np.arange(len(sorted_labels)))]


@dataclass(frozen=True)
class DiversityFirst(Order):
    """The rule of earlier documented runs: a random bucket but the last, weighted by what remains in it.

    It serves a large bucket too seldom, so the epoch ends with that bucket alone; the summary warns of it.
    """

    def labels(self, counts: Sequence[int], *, key: int) -> IntArray:
        return np.fromiter(_by_remainder(counts, key), np.int64, sum(counts))


def _by_credit(counts: Sequence[int], key: int) -> Iterator[int]:
    total = sum(counts)
    credit = [0] * len(counts)
    last = -1
    for draw in draws(key, total):
        credit = list(map(add, credit, counts))
        most = max(credit)
        if most >= total:
            last = credit.index(most)
        else:
            last = _pick_other([owed if owed > 0 else 0 for owed in credit], last, draw)
        credit[last] -= total
        yield last


def _by_remainder(counts: Sequence[int], key: int) -> Iterator[int]:
    remaining = list(counts)
    last = -1
    for draw in draws(key, sum(counts)):
        last = _pick_other(remaining, last, draw)
        remaining[last] -= 1
        yield last


def _pick_other(weights: Sequence[int], last: int, draw: int) -> int:
    """A bucket drawn by weight, other than `last` (-1: none yet) unless only that one has weight."""
    total = sum(weights)
    if last >= 0 and total > weights[last]:
        total -= weights[last]
    else:
        last = -1
    ticket = draw % total  # weights are far below 2^64, so the remainder favours none
    for bucket, weight in enumerate(weights):
        if bucket != last:
            ticket -= weight
            if ticket < 0:
                return bucket
    raise AssertionError("the weights sum to more than the ticket")
