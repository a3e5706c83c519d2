"""Stage 1: lengths -> padded lengths -> buckets.

in    lengths [n] in tokens; the edges, or the rule that finds them
out   padded lengths [n]; edges [K], inclusive upper bounds in padded tokens, strictly increasing
law   every padded length is a multiple of `pad_multiple` and at most the last edge

Lengths are rounded before anything is packed: rounding a finished batch overruns its budget (spec/batching.md
section 3).
"""

import numpy as np

from dflash_lightning.plan.samples import IntArray, Integers

GRID_STEPS = 1024
"""The optimal edges lie on a grid of at most this many lengths."""


def round_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def padded_lengths(lengths: IntArray, *, limit: int, pad_multiple: int) -> Integers:
    """[n] tokens -> [n] padded tokens; a longer sample counts as cut to `limit`, itself a multiple."""
    small = limit + pad_multiple < 1 << 31
    padded: Integers = np.empty(len(lengths), np.int32 if small else np.int64)
    np.minimum(lengths, limit, out=padded, casting="unsafe")  # what is cut to the limit fits
    padded += pad_multiple - 1
    padded //= pad_multiple
    padded *= pad_multiple
    return padded


def assign_buckets(padded: Integers, edges: tuple[int, ...]) -> IntArray:
    """[n] padded lengths -> [n] bucket of each; an edge belongs to the bucket it closes."""
    return np.searchsorted(np.array(edges, padded.dtype), padded)


def given_edges(edges: tuple[int, ...], pad_multiple: int) -> tuple[int, ...]:
    """Edges as written, rounded up as the lengths are; edges that fall together make one bucket."""
    return tuple(sorted({round_up(edge, pad_multiple) for edge in edges}))


def merged_edges(edges: tuple[int, ...], num_buckets: int) -> tuple[int, ...]:
    """Neighbouring buckets made one until so many are left: six become three in pairs, four as 2 2 1 1."""
    if num_buckets >= len(edges):
        return edges
    return tuple(int(part[-1]) for part in np.array_split(np.array(edges), num_buckets))


def quantile_edges(padded: Integers, num_buckets: int) -> tuple[int, ...]:
    """Edges that put about equally many samples in each bucket; fewer where many samples share a length."""
    shares = np.arange(1, num_buckets + 1) / num_buckets
    return tuple(np.unique(np.quantile(padded, shares, method="inverted_cdf")).tolist())


def optimal_edges(padded: Integers, num_buckets: int, *, limit: int, pad_multiple: int) -> tuple[int, ...]:
    """At most `num_buckets` edges that minimise sum(samples * edge): the tokens when all pad to their edge.

    Exact over the grid by dynamic programming: cheapest[j] is the least cost of the samples up to grid length
    j when an edge lies on it, with one bucket more each round.
    """
    step = pad_multiple * -(-int(padded.max()) // (pad_multiple * GRID_STEPS))
    on_grid, counts = np.unique(-(-padded // step) * step, return_counts=True)
    grid = np.minimum(on_grid, limit)  # the last step may stick out over the limit
    below = np.concatenate(([0], np.cumsum(counts)))  # below[j]: samples before grid length j
    cheapest = below[1:] * grid
    chosen = []  # chosen[k][j]: the grid length of the edge before the one on j, -1 for none
    for _ in range(1, min(num_buckets, len(grid))):
        before = np.concatenate(([0], cheapest))
        costs = [before[: j + 1] + (below[j + 1] - below[: j + 1]) * grid[j] for j in range(len(grid))]
        chosen.append([int(cost.argmin()) - 1 for cost in costs])
        cheapest = np.array([cost.min() for cost in costs])
    return _walk_back(grid, chosen)


def _walk_back(grid: Integers, chosen: list[list[int]]) -> tuple[int, ...]:
    at = len(grid) - 1
    edges = [int(grid[at])]
    for previous in reversed(chosen):
        at = previous[at]
        if at < 0:
            break
        edges.append(int(grid[at]))
    return tuple(reversed(edges))
