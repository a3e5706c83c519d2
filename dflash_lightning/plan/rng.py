"""Randomness without state: every draw is a hash of what it is for.

in    a purpose, as integers and words, for example (seed, epoch, "pack", bucket)
out   keys, hashes, permutations, streams of draws
law   the same on every platform and numpy version; no draw moves another one

The hash is splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014): a
bijection of 64 bits, so different ids never tie.
"""

import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dflash_lightning.plan.samples import IntArray

_MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
"""2^64 / golden ratio: steps of this size fill the circle of 64-bit integers as evenly as steps can."""
_MULTIPLIER_1 = 0xBF58476D1CE4E5B9
_MULTIPLIER_2 = 0x94D049BB133111EB
_CHUNK = 1 << 16


def key(*parts: int | str) -> int:
    """A 64-bit key for a purpose.

    The mixes are chained, not added: with seed + epoch, run (seed 0, epoch 1) would repeat (seed 1, epoch 0).
    """
    state = 0
    for part in parts:
        state = _splitmix((state ^ _word(part)) & _MASK)
    return state


def _word(part: int | str) -> int:
    """Words are lifted above 2^32, so that a word does not meet the small integer of its checksum."""
    return part & _MASK if isinstance(part, int) else (1 << 32) | zlib.crc32(part.encode())


def _splitmix(x: int) -> int:
    z = (x + GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * _MULTIPLIER_1) & _MASK
    z = ((z ^ (z >> 27)) * _MULTIPLIER_2) & _MASK
    return z ^ (z >> 31)


def hash_ids(key: int, ids: IntArray) -> npt.NDArray[np.uint64]:
    """[n] ids -> [n] splitmix64(key ^ id)."""
    z = ids.astype(np.uint64)  # the one copy; everything below works in place
    z ^= np.uint64(key)
    z += np.uint64(GOLDEN)
    z ^= z >> np.uint64(30)
    z *= np.uint64(_MULTIPLIER_1)
    z ^= z >> np.uint64(27)
    z *= np.uint64(_MULTIPLIER_2)
    z ^= z >> np.uint64(31)
    return z


def permutation(key: int, ids: IntArray) -> IntArray:
    """The ids (all different) in the order of their hashes."""
    return ids[np.argsort(hash_ids(key, ids))]


def draws(key: int, count: int) -> Iterator[int]:
    """`count` integers of 64 bits, one hash per position; made in chunks, so that memory stays flat."""
    for start in range(0, count, _CHUNK):
        yield from hash_ids(key, np.arange(start, min(start + _CHUNK, count))).tolist()
