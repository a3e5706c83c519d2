"""How much of the real text a tree of drafts would have held, for many anchors at once and no tree built.

in    per anchor and slot the drafter's likeliest tokens, the real tokens, several budgets
out   streak per anchor and budget: drafted tokens that verification would keep
law   equals walking the tree of decoding/tree.py: a prefix of the real text is in the tree of budget M
      exactly when fewer than M prefixes come before it, by score, of equals by the smaller path of ranks

Each question (how many prefixes come before this real one?) is answered depth by depth. The children of a
prefix that come first are its best ones, so bisection counts them; formed are only those that have children
to be counted. A question whose count reaches the largest budget is dropped.
"""

# n anchors, d slots of a block, k best tokens of a slot; q questions, p prefixes of one depth

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dflash_lightning.objective.marginals import GRID, Marginals

PREFIXES_AT_ONCE = 1 << 19
REAL, NEVER = -1, 1 << 30


@torch.no_grad()
def tree_streaks(
    best: Marginals,
    labels: Int[Tensor, "n d"],
    supervised: Bool[Tensor, "n d"],
    *,
    budgets: Sequence[int],
) -> Int[Tensor, "n budgets"]:
    """Supervised slots before the real text leaves the tree, per anchor and budget (spec/dflash.md 4.4.1).

    A slot without supervision counts for nothing and is taken as guessed, as in `streaks`.

    Args:
        best: the likeliest tokens of each slot, at least max(budgets) of them or the whole vocabulary.

    Raises:
        ValueError: no budget, or one below 1.
    """
    if min(budgets, default=0) < 1:
        raise ValueError(f"a budget counts the nodes of a tree and is at least 1, got {list(budgets)}")
    rows = max(1, PREFIXES_AT_ONCE // max(budgets))
    parts = zip(*(torch.split(tensor, rows) for tensor in (*best, labels, supervised)), strict=True)
    return torch.cat(
        [_streaks(Marginals(scores, ids), text, counts, budgets) for scores, ids, text, counts in parts]
    )


def _streaks(best: Marginals, labels: Tensor, supervised: Tensor, budgets: Sequence[int]) -> Tensor:
    ranks, deepest = _real_ranks(best.token_ids, labels, supervised, max(budgets))
    places, anchor, slot = _Questions(best.log_probs, ranks, deepest, max(budgets)).answers()
    held = (places[:, None] < places.new_tensor(budgets)) & supervised[anchor, slot][:, None]
    return places.new_zeros(len(labels), len(budgets)).index_add_(0, anchor, held.long())


@dataclass(frozen=True)
class _Prefixes:
    """Prefixes of one depth."""

    question: Int[Tensor, " p"]
    score: Float[Tensor, " p"]
    better_from: Int[Tensor, " p"]
    """The slot where it left the real text to a better rank, and from which on it wins ties; REAL where it is
    the real text, NEVER where it left to a worse rank."""

    def __getitem__(self, picked: Tensor) -> "_Prefixes":
        return _Prefixes(*(tensor.index_select(0, picked) for tensor in vars(self).values()))

    def and_real(self, question: Tensor, score: Tensor) -> "_Prefixes":
        added = (question, score, torch.full_like(question, REAL))
        return _Prefixes(*(torch.cat(pair) for pair in zip(vars(self).values(), added, strict=True)))


class _Questions:
    """One for each real prefix that may be in the tree: anchor, and slot of its last token."""

    def __init__(self, log_probs: Tensor, ranks: Tensor, deepest: Tensor, limit: int) -> None:
        self.num_slots, self.num_stored = log_probs.shape[1:]
        self.limit, self.num_ranks = limit, min(limit, self.num_stored)
        self.log_probs, self.ranks = log_probs.reshape(-1), ranks.reshape(-1)
        reach = int(deepest.amax()) if len(deepest) else 0  # no real prefix is longer
        slots = torch.arange(reach, device=ranks.device)
        scores = log_probs.new_zeros(ranks.shape)
        scores[:, :reach] = log_probs[:, :reach].gather(2, ranks[:, :reach, None])[..., 0].cumsum(1)
        self.scores = scores.reshape(-1)
        self.anchor, self.slot = (slots < deepest[:, None]).nonzero().unbind(1)
        self.row = self.anchor * self.num_slots
        self.least = self.scores.index_select(0, self.row + self.slot)
        self.places = self.slot.clone()
        """Prefixes found to come before it; its own beginnings, `slot` of them, do."""

    def answers(self) -> tuple[Tensor, Tensor, Tensor]:
        """Per question the number of prefixes that come before (or some number from `limit` on), anchor,
        slot."""
        none = self.slot.new_empty(0)
        prefixes = _Prefixes(none, self.least.new_empty(0), none)
        for slot in range(self.num_slots):
            open_ones = ((self.slot >= slot) & (self.places < self.limit)).nonzero()[:, 0]
            parents = prefixes.and_real(open_ones, self._real_scores(open_ones, slot))
            if len(parents.question) == 0:
                break
            row = self.row.index_select(0, parents.question) + slot
            needed = self.least.index_select(0, parents.question) - parents.score
            counts = self._num_children(parents, row, needed)
            self.places.index_add_(0, parents.question, counts)
            if slot + 1 == self.num_slots:
                break
            unsettled = (self.places < self.limit).index_select(0, parents.question)
            prefixes = self._fertile_children(
                parents, row, needed, counts, picked=((counts > 0) & unsettled).nonzero()[:, 0], slot=slot
            )
        return self.places, self.anchor, self.slot

    def _real_scores(self, questions: Tensor, slot: int) -> Tensor:
        """Of the real prefixes that end before this slot."""
        if slot == 0:
            return self.least.new_zeros(len(questions))
        return self.scores.index_select(0, self.row.index_select(0, questions) + (slot - 1))

    def _num_children(self, parents: _Prefixes, row: Tensor, needed: Tensor) -> Int[Tensor, " p"]:
        """How many children come before what is asked for."""
        real = parents.better_from == REAL
        ties_lose = real | (parents.better_from > self.slot.index_select(0, parents.question))
        counts = self._ranks_from(needed + ties_lose / GRID, row)
        rank = self.ranks.index_select(0, row)
        # a real parent's better children win ties, and its real child is no other prefix
        return torch.where(real, torch.maximum(rank, counts - 1), counts)

    def _fertile_children(
        self, parents: _Prefixes, row: Tensor, needed: Tensor, counts: Tensor, *, picked: Tensor, slot: int
    ) -> _Prefixes:
        """Of the first `counts` children of the picked parents those whose best child scores as needed."""
        parents = parents[picked]
        row, needed, counts = (tensor.index_select(0, picked) for tensor in (row, needed, counts))
        fertile = self._ranks_from(needed - self._log_probs(row + 1, 0), row)
        real_rank = self.ranks.index_select(0, row).masked_fill_(parents.better_from != REAL, NEVER)
        counts = torch.minimum(fertile - (fertile > real_rank).long(), counts)
        parent = torch.repeat_interleave(counts)
        first = (counts.cumsum(0) - counts).index_select(0, parent)
        rank = torch.arange(len(parent), device=parent.device) - first
        above, real_rank = parents[parent], real_rank.index_select(0, parent)
        worse = rank >= real_rank
        rank += worse  # the real child is left out
        leaves = torch.where(worse, NEVER, slot)
        return _Prefixes(
            above.question,
            above.score + self._log_probs(row.index_select(0, parent), rank),
            torch.where(above.better_from == REAL, leaves, above.better_from),
        )

    def _log_probs(self, row: Tensor, rank: Tensor | int) -> Tensor:
        return self.log_probs.index_select(0, row * self.num_stored + rank)

    def _ranks_from(self, least: Tensor, row: Tensor) -> Tensor:
        """How many log-probabilities of the row are at least `least`, by bisection."""
        low, step = row * self.num_stored - 1, 1 << (self.num_ranks.bit_length() - 1)
        start, last = low, low + self.num_ranks
        while step:
            tried = torch.minimum(low + step, last)
            low = torch.where(self.log_probs.index_select(0, tried) >= least, tried, low)
            step //= 2
        return low - start


def _real_ranks(
    token_ids: Int[Tensor, "n d k"], labels: Int[Tensor, "n d"], supervised: Bool[Tensor, "n d"], limit: int
) -> tuple[Int[Tensor, "n d"], Int[Tensor, " n"]]:
    """Ranks of the real tokens, and how deep a real prefix can be in the tree at all.

    All prefixes with ranks no worse come before it, so the product of (rank + 1) must not exceed the limit.
    """
    num_slots = labels.shape[1]
    token_ids, labels = token_ids[..., :limit].flatten(0, 1), labels.reshape(-1)
    ranks, deepest = torch.zeros_like(labels), labels.new_zeros(len(supervised))
    row, boxes = torch.arange(len(deepest), device=labels.device) * num_slots, torch.ones_like(deepest)
    for slot in range(num_slots):
        rank = _rank_of(labels.index_select(0, row), token_ids.index_select(0, row), missing=limit)
        rank.masked_fill_(~supervised[:, slot].index_select(0, row // num_slots), 0)
        boxes = boxes * (rank + 1)
        kept = (boxes <= limit).nonzero()[:, 0]
        if len(kept) == 0:
            break
        row, boxes, rank = (tensor.index_select(0, kept) for tensor in (row, boxes, rank))
        ranks.index_copy_(0, row, rank)
        deepest.index_fill_(0, row // num_slots, slot + 1)
        row = row + 1
    last = (torch.arange(1, num_slots + 1, device=labels.device) * supervised).amax(1)
    return ranks.view_as(supervised), torch.minimum(deepest, last)


def _rank_of(token: Int[Tensor, " n"], token_ids: Int[Tensor, "n k"], *, missing: int) -> Int[Tensor, " n"]:
    """The column of the token, which is there at most once."""
    num_ranks = token_ids.shape[1]
    from_behind = torch.arange(num_ranks, 0, -1, dtype=torch.int32, device=token.device)
    place = ((token_ids == token[:, None]) * from_behind).amax(1).long()
    return torch.where(place > 0, num_ranks - place, missing)
