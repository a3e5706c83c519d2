"""The last, short window of an epoch: make it a full one without losing or doubling a sample.

in    the batches that are left, fewer than accumulate x world; the cost of a batch
out   pieces: (which of the batches, sample ids), their number a multiple of world
law   the real ids of the pieces are those of the batches, each once; at most world - 1 pieces are ghosts, and
      only where single samples are too few

A ghost is a copy that fills a rank's turn and carries no loss: its ids are bitwise negated, ~id.
"""

import heapq
from collections.abc import Callable, Sequence

from dflash_lightning.plan.samples import IntArray

Piece = tuple[int, IntArray]
Place = tuple[int, ...]
"""Which batch, then which half at each cut: places sort as the pieces lie."""


def split_tail(
    batches: Sequence[IntArray], cost: Callable[[IntArray], float], *, world: int, accumulate: int
) -> list[Piece]:
    """Halve the costliest batches until accumulate x world pieces exist, or the largest multiple of world.

    Pieces stay in the order of the batches they come from; ghosts come last.
    """
    num_samples = sum(len(ids) for ids in batches)
    wanted = min(world * accumulate, num_samples // world * world)
    if len(batches) <= wanted:
        return _halve(batches, cost, wanted)
    # More batches than whole layers of samples: every sample becomes a piece, ghosts fill the last layer.
    singles = _halve(batches, cost, num_samples)
    origin, ids = min(singles, key=lambda piece: cost(piece[1]))
    return singles + [(origin, ~ids)] * (-num_samples % world)


def _halve(batches: Sequence[IntArray], cost: Callable[[IntArray], float], wanted: int) -> list[Piece]:
    """The costliest batch of more than one sample first, of equal ones the earlier."""
    pieces: dict[Place, IntArray] = {(at,): ids for at, ids in enumerate(batches)}
    waiting = [(-cost(ids), place) for place, ids in pieces.items() if len(ids) > 1]
    heapq.heapify(waiting)
    while len(pieces) < wanted:
        _, place = heapq.heappop(waiting)
        ids = pieces.pop(place)
        half = (len(ids) + 1) // 2
        for side, part in enumerate((ids[:half], ids[half:])):
            pieces[*place, side] = part
            if len(part) > 1:
                heapq.heappush(waiting, (-cost(part), (*place, side)))
    return [(place[0], pieces[place]) for place in sorted(pieces)]
