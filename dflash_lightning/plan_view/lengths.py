"""Lengths without a dataset: a .npy file of integers, and how many of each sample's tokens carry loss.

in    paths, or a share
out   Samples
law   nothing but plain integers is ever read: a file of Python objects is refused, not unpickled
"""

from pathlib import Path

import numpy as np

from dflash_lightning.plan.samples import IntArray, Samples

DEFAULT_SHARE = 0.7
"""Supervised share of a chat where nobody knows it: answers are longer than questions."""
_MOST = np.iinfo(np.int64).max
_MAGIC = b"\x93NUMPY"


def read_samples(lengths: str | Path, supervised: str | float = DEFAULT_SHARE) -> Samples:
    """Raises FileNotFoundError, ValueError: each names the option, the file and the first bad value."""
    return with_supervised(_read_integers(lengths, "--lengths", least=1), supervised)


def with_supervised(lengths: IntArray, supervised: str | float) -> Samples:
    """`supervised`: a share between 0 and 1, or a .npy file with one count per length."""
    if isinstance(supervised, str):
        counts = _read_integers(supervised, "--supervised", least=0)
        if counts.shape != lengths.shape:
            raise ValueError(
                f"--supervised {supervised} holds {len(counts)} counts for {len(lengths)} lengths; "
                "give one count per sample, in the same order"
            )
        if (counts > lengths).any():
            first = int((counts > lengths).argmax())
            raise ValueError(
                f"--supervised {supervised}: sample {first} has a count of {counts[first]} for "
                f"{lengths[first]} tokens; a sample's loss falls on its own tokens, at most all of them"
            )
        return Samples(lengths, counts)
    if not 0 <= supervised <= 1:
        raise ValueError(
            f"--supervised is a share between 0 and 1, or a .npy file of counts, got {supervised}"
        )
    counts = (lengths * supervised).astype(np.int64)
    return Samples(lengths, np.maximum(counts, 1) if supervised else counts)


def _read_integers(path: str | Path, option: str, *, least: int) -> IntArray:
    array = _open(Path(path), f"{option} {path}")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{option} {path} holds {array.dtype} in shape {array.shape}, not one row of integers; "
            f"save tokens per sample: numpy.save({str(path)!r}, numpy.array(lengths, dtype=numpy.int64))"
        )
    if not len(array):
        raise ValueError(f"{option} {path} is empty: a plan needs at least one sample")
    wrong = (array < least) | (array > _MOST)
    if wrong.any():
        first = int(wrong.argmax())
        bound = f"at least {least}" if array[first] < least else f"at most {_MOST}"
        raise ValueError(
            f"{option} {path}: sample {first} has {array[first]} tokens, {bound} is possible; "
            "leave such samples out"
        )
    return np.asarray(array).astype(np.int64, copy=False)


def _open(path: Path, what: str) -> np.ndarray:
    if not path.is_file():
        raise FileNotFoundError(f"{what}: there is no such file; make one with numpy.save")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError(f"{what} is not a .npy file; make one with numpy.save")
    try:
        # Mapped, so that a file of a hundred million lengths costs no second copy.
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{what} cannot be read as numbers ({error}): it holds Python objects or is cut short; "
            "save an integer array with numpy.save"
        ) from error
    return array
