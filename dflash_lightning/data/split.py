"""Which rows validate: decided by what a row holds, so that equal rows are never on both sides.

in    token ids of a row as stored, the share to hold out
out   "train" or "validation"
law   a function of the ids alone: order, files, workers and other rows have no say
"""

import hashlib
from typing import Literal

import numpy as np
import numpy.typing as npt

from dflash_lightning.data.conversations import RowError

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")


def content_key(input_ids: npt.NDArray[np.int32]) -> bytes:
    """16 bytes, equal for equal ids."""
    return hashlib.blake2b(np.ascontiguousarray(input_ids, "<i4").tobytes(), digest_size=16).digest()


def side(key: bytes, validation_share: float) -> Split:
    return "validation" if int.from_bytes(key[:8], "big") < validation_share * 2**64 else "train"


class Splitter:
    """Places rows one by one; rows of files that are held out as a whole come first."""

    def __init__(self, validation_share: float) -> None:
        self._share = validation_share
        self._held_out: set[bytes] = set()

    def place(self, input_ids: npt.NDArray[np.int32], *, held_out: bool) -> Split:
        """Raises RowError for a training row whose equal is held out."""
        key = content_key(input_ids)
        if held_out:
            self._held_out.add(key)
            return "validation"
        if key in self._held_out:
            raise RowError("also among the validation inputs")
        return side(key, self._share)
