"""DDTree: the tree of drafts with the most probable prefixes that a budget of nodes allows.

in    per depth the drafter's likeliest tokens and their log-probabilities; a budget
out   DraftTree: tokens, parents, depths and scores of its nodes, best first
law   the nodes are exactly the `budget` most probable prefixes, the probability of a prefix being the product
      of its slots' marginals; of equals the one with the lexicographically smaller path of ranks comes first

Source: spec/dflash.md 4.4.1. A node is pushed when what must precede it has been taken: its parent and its
better sibling both have a score at least as high and a smaller path, so a heap meets the nodes in order.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class DraftTree:
    """Drafted nodes 1..m in the order of their scores, below the root 0, which is the anchor."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    """Node each hangs from, always an earlier one; 0: the root."""
    depths: tuple[int, ...]
    """Distance to the root: the node of depth d is a guess at the d-th token behind the anchor."""
    scores: tuple[float, ...]
    """Log-probability of the whole path from the root, never increasing."""

    def __len__(self) -> int:
        return len(self.tokens)

    def children(self) -> dict[tuple[int, int], int]:
        """(parent, token) -> node."""
        pairs = zip(self.parents, self.tokens, strict=True)
        return {pair: node for node, pair in enumerate(pairs, start=1)}

    def positions(self, start: int) -> Int[Tensor, " nodes"]:
        """Where root and nodes stand: siblings share a position."""
        return start + torch.tensor((0, *self.depths))

    def visible(self, past: int) -> Bool[Tensor, "nodes keys"]:
        """Which keys root and nodes see: `past` committed tokens, then their own ancestors and
        themselves."""
        rows = torch.eye(len(self) + 1, dtype=torch.bool)
        for node, parent in enumerate(self.parents, start=1):
            rows[node] |= rows[parent]
        return torch.cat((rows.new_ones(len(rows), past), rows), dim=1)


def build_tree(
    log_probs: Sequence[Sequence[float]], token_ids: Sequence[Sequence[int]], budget: int
) -> DraftTree:
    """The best tree of at most `budget` nodes.

    Args:
        log_probs: [D][k] per depth, in descending order; on the grid of objective/marginals.py, so that
            ties are exact. `k` of at least min(budget, vocabulary) loses nothing.
        token_ids: [D][k] the tokens of these ranks.
        budget: nodes beside the root; 0 or less, or no depth at all, gives the root alone.
    """
    nodes: list[tuple[int, int, int, float]] = []  # token, parent, depth, score
    # (-score, path of ranks, parent, parent's score): no two paths are equal, so parents are never compared
    heap: list[tuple[float, tuple[int, ...], int, float]] = []
    if log_probs:
        heap.append((-log_probs[0][0], (0,), 0, 0.0))
    while heap and len(nodes) < budget:
        negative, path, parent, above = heapq.heappop(heap)
        depth, rank = len(path), path[-1]
        nodes.append((token_ids[depth - 1][rank], parent, depth, -negative))
        if rank + 1 < len(log_probs[depth - 1]):
            sibling = above + log_probs[depth - 1][rank + 1]
            heapq.heappush(heap, (-sibling, (*path[:-1], rank + 1), parent, above))
        if depth < len(log_probs):
            child = -negative + log_probs[depth][0]
            heapq.heappush(heap, (-child, (*path, 0), len(nodes), -negative))
    tokens, parents, depths, scores = zip(*nodes, strict=True) if nodes else ((), (), (), ())
    return DraftTree(tokens=tokens, parents=parents, depths=depths, scores=scores)


def walk_tree(tree: DraftTree, verified: Sequence[int]) -> tuple[list[int], int]:
    """Follow the target's own tokens down the tree: (nodes passed, root first; the token behind the last).

    `verified` holds the target's token behind each node, the root's first. Spec/dflash.md 4.4.3.
    """
    children = tree.children()
    passed, following = [0], verified[0]
    while (passed[-1], following) in children:
        passed.append(children[passed[-1], following])
        following = verified[passed[-1]]
    return passed, following
