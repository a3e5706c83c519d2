"""What the planner knows of a dataset: two integers per sample, never a token.

in    lengths and supervised counts of a token store
law   a sample's id is its position in these arrays
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Integers = npt.NDArray[np.integer]
"""Integers of any size: arrays as long as the dataset are kept as small as their values allow."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Raises ValueError where the two arrays cannot describe one dataset."""

    lengths: IntArray
    """[n] tokens of each sample, 1 or more."""
    supervised: IntArray
    """[n] tokens of each sample that carry loss (loss mask 1), 0 to its length."""

    def __post_init__(self) -> None:
        if self.lengths.ndim != 1 or self.lengths.shape != self.supervised.shape:
            raise ValueError(
                "lengths and supervised must be two rows of equal length, "
                f"got shapes {self.lengths.shape} and {self.supervised.shape}"
            )
        _require_none(self.lengths < 1, self.lengths, "has a length of", "a sample holds at least one token")
        wrong = (self.supervised < 0) | (self.supervised > self.lengths)
        _require_none(wrong, self.supervised, "has a supervised count of", "it lies between 0 and the length")

    def __len__(self) -> int:
        return len(self.lengths)


def _require_none(wrong: npt.NDArray[np.bool_], values: IntArray, what: str, rule: str) -> None:
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(f"sample {first} {what} {values[first]}: {rule}; rebuild the token store")
