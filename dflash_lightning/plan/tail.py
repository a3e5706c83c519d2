"""The last, short window of an epoch: make it a full one without losing or doubling a sample.

in    the batches that are left, fewer than accumulate x world; the cost of a batch
out   pieces: (which of the batches, sample ids), their number a multiple of world
law   the real ids of the pieces are those of the batches, each once; at most world - 1 pieces are ghosts, and
      only where single samples are too few

A ghost is a copy that fills a rank's turn and carries no loss: its ids are bitwise negated, ~id.
"""

from collections.abc import Callable, Sequence

from dflash_lightning.plan.samples import IntArray

Piece = tuple[int, IntArray]


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
    pieces = list(enumerate(batches))
    while len(pieces) < wanted:
        divisible = [at for at, (_, ids) in enumerate(pieces) if len(ids) > 1]
        at = max(divisible, key=lambda at: cost(pieces[at][1]))
        origin, ids = pieces[at]
        half = (len(ids) + 1) // 2
        pieces[at : at + 1] = [(origin, ids[:half]), (origin, ids[half:])]
    return pieces
