"""A fixed random projection of a gradient: inner products survive, memory stays at a few MB.

in    gradients of all parameters, in a fixed order
out   a sketch [width], the same on every rank, device and resumed run: everything is drawn from one seed
law   linear: the sketch of a sum is the sum of the sketches. Inner products are unbiased, with a standard
      deviation of at most |x| |y| sqrt(2 / width): 0.003 of a cosine

A count sketch (Charikar, Chen, Farach-Colton 2002) in pieces: each piece of up to `width` entries gets random
signs and a random rotation, and is added up. Entries of one piece never meet, entries of two pieces meet with
chance 1 / width. So it reads the gradients once, and hashes no position.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

WIDTH = 1 << 18
SEED = 20_020_708


class Projection:
    """Projects lists of tensors with the given numbers of entries.

    Args:
        sizes: Entries of each tensor; fixes which piece gets which rotation and signs.
        width: Entries of a sketch; 4 bytes each, and twice as many signs.
        seed: What rotations and signs are drawn from.
    """

    def __init__(self, sizes: Sequence[int], *, width: int = WIDTH, seed: int = SEED) -> None:
        self.sizes = list(sizes)
        self.width = width
        draw = torch.Generator().manual_seed(seed)
        pieces = sum(-(-size // width) for size in self.sizes)
        # Pieces read the signs at different places, so that no two of them share a pattern.
        self._signs = torch.randint(0, 2, (2 * width,), generator=draw).float().mul_(2).sub_(1)
        self._rotation = torch.randint(0, width, (pieces,), generator=draw).tolist()
        self._first_sign = torch.randint(0, width, (pieces,), generator=draw).tolist()
        self._piece_sign = torch.randint(0, 2, (pieces,), generator=draw).mul_(2).sub_(1).tolist()

    @torch.no_grad()
    def __call__(self, tensors: Iterable[Tensor | None]) -> Tensor:
        """The sketch [width], fp32, on the tensors' device; None counts as zeros."""
        sketch: Tensor | None = None
        number = 0
        for tensor, size in zip(tensors, self.sizes, strict=True):
            if tensor is not None and sketch is None:
                sketch = torch.zeros(self.width, device=tensor.device)
                self._signs = self._signs.to(tensor.device)
            for start in range(0, size, self.width):
                if tensor is not None and sketch is not None:
                    self._add(sketch, tensor.reshape(-1)[start : start + self.width].float(), number)
                number += 1
        return sketch if sketch is not None else torch.zeros(self.width, device=self._signs.device)

    def _add(self, sketch: Tensor, piece: Tensor, number: int) -> None:
        at, first, sign = self._rotation[number], self._first_sign[number], self._piece_sign[number]
        signs = self._signs[first : first + len(piece)]
        fits = self.width - at  # entries before the rotation comes round
        sketch[at : at + len(piece)].addcmul_(piece[:fits], signs[:fits], value=sign)
        if len(piece) > fits:
            sketch[: len(piece) - fits].addcmul_(piece[fits:], signs[fits:], value=sign)

    @property
    def nbytes(self) -> int:
        """Bytes held beside the sketches: the signs, and three numbers a piece."""
        return self._signs.nbytes + 3 * 8 * len(self._rotation)


def cosine(first: Tensor, second: Tensor) -> float:
    """Cosine of the angle between two vectors; NaN where one is zero."""
    across, one, other = products(first, second)
    return across / (one * other) ** 0.5 if one and other else float("nan")


def products(first: Tensor, second: Tensor) -> tuple[float, float, float]:
    """<first, second>, |first|^2 and |second|^2 in fp64, read back together."""
    x, y = first.double(), second.double()
    across, one, other = torch.stack([x @ y, x @ x, y @ y]).tolist()
    return across, one, other
