"""What a drafter remembers between decoding rounds: keys and values of the verified context.

in    per layer and round, keys and values of the new context positions and of the block
out   the layer's keys and values over [all context ; block]
law   a block is never remembered (its tokens may be rejected), so incremental equals full recomputation
"""

from jaxtyping import Float
from torch import Tensor


class LayerCache:
    """Keys and values of one layer in buffers that grow by doubling; the block borrows the room behind."""

    def __init__(self) -> None:
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def extend(
        self,
        keys: Float[Tensor, "b new heads d"],
        values: Float[Tensor, "b new heads d"],
        *,
        num_context: int,
    ) -> tuple[Float[Tensor, "b all heads d"], Float[Tensor, "b all heads d"]]:
        """Keep the first `num_context` positions for good; return views over everything, block included.

        The views are overwritten by the next call. Inference only: nothing here can be differentiated.
        """
        end = self.length + keys.shape[1]
        self._keys = grown(self._keys, keys, end)
        self._values = grown(self._values, values, end)
        self._keys[:, self.length : end] = keys
        self._values[:, self.length : end] = values
        self.length += num_context
        return self._keys[:, :end], self._values[:, :end]


class DrafterCache:
    """One LayerCache per drafter layer, for one decoding run."""

    def __init__(self, num_layers: int) -> None:
        self.layers = [LayerCache() for _ in range(num_layers)]

    @property
    def length(self) -> int:
        """Context positions remembered: the next call's taps start at this position."""
        return self.layers[0].length


def grown(buffer: Tensor | None, like: Tensor, length: int, *, zeros: bool = False) -> Tensor:
    """A buffer [b, at least `length`, heads, d] that begins with what `buffer` holds; what is new in it is
    undefined, or `zeros`."""
    if buffer is not None and buffer.shape[1] >= length:
        return buffer
    rows, _, heads, channels = like.shape
    make = like.new_zeros if zeros else like.new_empty
    larger = make(rows, 2 * length, heads, channels)
    if buffer is not None:
        larger[:, : buffer.shape[1]] = buffer
    return larger
