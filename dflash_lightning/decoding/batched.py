"""Draft and verify for several prompts at once: one target pass judges the drafts of all rows.

in    target, drafter, prompts of any lengths
out   per prompt what decode_chain, decode_tree or decode_plain gives for it alone, in far fewer passes
law   a row's tokens and rounds are those of its prompt alone. In exact arithmetic: a batch sums in another
      order, so on a real target a near-tie of two tokens may fall the other way, as between any two kernels

Rows accept unequally many drafts, so caches are ragged (ragged.py); a finished row leaves. A chain is a tree
without branches, and plain decoding is a tree without nodes, so that all three are one loop.
"""

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import DynamicCache

from dflash_lightning.decoding.decoded import Decoded, Transcript
from dflash_lightning.decoding.ragged import RaggedDrafterCache, keep_ragged, padded, select_rows
from dflash_lightning.decoding.rounds import resolve_block_size
from dflash_lightning.decoding.sampling import PositionLuck, Sampling, TokenChoice
from dflash_lightning.decoding.stage_times import StageTimes
from dflash_lightning.decoding.tree import DraftTree, build_tree, walk_tree
from dflash_lightning.decoding.verify import LOGITS_AT_ONCE, greedy_tokens, require_prompt
from dflash_lightning.drafter.mask import build_masks
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.objective.marginals import best_tokens
from dflash_lightning.target.attention_masks import model_masks
from dflash_lightning.target.layers import require_croppable
from dflash_lightning.target.model import Target


@torch.no_grad()
def decode_batch(
    target: Target,
    drafter: DFlashDrafter | None,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    budget: int | None = None,
    stop_ids: Collection[int] = (),
    block_size: int | None = None,
    sampling: Sampling | None = None,
    seeds: Sequence[int] | None = None,
    times: StageTimes | None = None,
) -> list[Decoded]:
    """Decode all prompts side by side.

    Args:
        drafter: None decodes plainly, a token per row and pass.
        budget: nodes of a tree per row and round; None drafts chains.
        stop_ids, block_size, sampling: as in decode_chain. Sampling by coupling only.
        seeds: of each prompt, instead of sampling.seed for the first, that and one for the second, and so on.
        times: receives the seconds of each stage.

    Raises:
        ValueError: an empty prompt, block size or budget out of range, rejection sampling, or a target that
            cannot forget rejected tokens or takes no mask.
    """
    transcripts = [Transcript(max_new_tokens, stop_ids, None) for _ in prompts]
    rounds = RaggedRounds(
        target,
        drafter,
        prompts,
        budget=budget,
        block_size=1 if drafter is None else resolve_block_size(drafter, block_size),
        sampling=sampling,
        seeds=seeds,
        times=times,
    )
    active = transcripts if max_new_tokens > 0 else []
    for transcript, token in zip(active, rounds.prefill() if active else (), strict=True):
        transcript.add([token])
    while True:
        going = [row for row, transcript in enumerate(active) if transcript.left > 0]
        if not going:
            return [transcript.result() for transcript in transcripts]
        if len(going) < len(active):
            active = [active[row] for row in going]
            rounds.select(going)
        trees = rounds.draft([transcript.left - 1 for transcript in active])  # the target adds one of its own
        for transcript, committed in zip(active, rounds.commit(trees), strict=True):
            transcript.add(committed)


class RaggedRounds:
    """Anchors, caches and taps of several prompts.

    Always: row r of the target's cache holds the `starts[r]` committed tokens before its anchor, its row of
    the drafter's cache all of them but the last `pending[r]`, whose taps are the first of `taps[r]`.
    """

    def __init__(
        self,
        target: Target,
        drafter: DFlashDrafter | None,
        prompts: Sequence[Sequence[int]],
        *,
        block_size: int,
        budget: int | None = None,
        sampling: Sampling | None = None,
        seeds: Sequence[int] | None = None,
        times: StageTimes | None = None,
    ) -> None:
        require_croppable(target.config)
        for prompt in prompts:
            require_prompt(prompt)
        _require_batchable(budget, sampling)
        self.target, self.block_size, self.budget = target, block_size, budget
        self.drafter = drafter if block_size > 1 and budget != 0 else None
        self.layer_ids = () if self.drafter is None else self.drafter.config.target_layer_ids
        self.choice = TokenChoice(sampling)
        if self.choice.sampling is not None:
            first = self.choice.sampling.seed
            self.choice.luck = RowsLuck(range(first, first + len(prompts)) if seeds is None else seeds)
        self.times = times or StageTimes()
        self.cache = DynamicCache()  # without a config: sliding layers keep all positions and can be cropped
        layers = 0 if self.drafter is None else self.drafter.config.num_layers
        self.drafter_cache = RaggedDrafterCache(layers, len(prompts))
        self.prompts = prompts
        self.starts = [len(prompt) for prompt in prompts]
        self.pending = list(self.starts)
        self.anchors: list[int] = []
        self.taps = torch.empty(0)

    def prefill(self) -> list[int]:
        """Run the prompts, padded on the right, where no token of them looks; returns the first anchors."""
        with self.times.of("prefill", self.target.device):
            ids = padded(self.prompts).to(self.target.device)
            states = self.target.extend(ids, self.layer_ids, cache=self.cache)
            assert states.final is not None
            last = torch.tensor(self.starts, device=ids.device)
            hidden = states.final[torch.arange(len(ids), device=ids.device), last - 1]
            self.taps = states.taps
            self.anchors = self.choice.tokens(hidden, self.target.head, last).tolist()
        return list(self.anchors)

    def select(self, rows: Sequence[int]) -> None:
        """Only these rows go on."""
        self.starts, self.pending, self.anchors = (
            [values[row] for row in rows] for values in (self.starts, self.pending, self.anchors)
        )
        select_rows(self.cache, rows, longest=max(self.starts))
        self.drafter_cache.select(rows)
        self.taps = self.taps[list(rows), : max(self.pending)]
        if isinstance(self.choice.luck, RowsLuck):
            self.choice.luck.select(rows)

    def draft(self, max_depths: Sequence[int]) -> list[DraftTree]:
        """One tree per row, none deeper than the row may still take."""
        if self.drafter is None:
            return [build_tree([], [], 0) for _ in max_depths]
        with self.times.of("draft", self.target.device):
            hidden = self.draft_states(self.drafter)
            if self.budget is None:
                drafted = greedy_tokens(hidden.flatten(0, 1), self.target.head).view(hidden.shape[:2])
                return [chain_tree(row[:d]) for row, d in zip(drafted.tolist(), max_depths, strict=True)]
            chunk = max(1, LOGITS_AT_ONCE // self.target.head.shape[0])
            best = best_tokens(hidden.flatten(0, 1), self.target.head, k=self.budget, chunk=chunk)
            rows = (values.view(*hidden.shape[:2], -1).tolist() for values in best)
            return [
                build_tree(log_probs[:depth], token_ids[:depth], self.budget)
                for log_probs, token_ids, depth in zip(*rows, max_depths, strict=True)
            ]

    def draft_states(self, drafter: DFlashDrafter) -> Float[Tensor, "b k h"]:
        """The drafter's hidden states of the block_size - 1 slots behind each row's anchor."""
        like, size = drafter.fc.weight, self.block_size
        starts = torch.tensor(self.starts, device=like.device)[:, None]
        known = starts - torch.tensor(self.pending, device=like.device)[:, None]
        context = known + torch.arange(self.taps.shape[1], device=like.device)
        positions = torch.cat((context, starts + torch.arange(size, device=like.device)), dim=1)
        masks = build_masks(
            starts, torch.ones_like(starts, dtype=torch.bool), max(self.starts), size, drafter.config
        )
        block = [[anchor, *[drafter.config.mask_token_id] * (size - 1)] for anchor in self.anchors]
        embedded = self.target.embed(torch.tensor(block, device=self.target.device)).to(like)
        self.drafter_cache.expect(self.pending)
        hidden: Tensor = drafter(embedded, self.taps.to(like), positions, masks, self.drafter_cache)
        self.taps, self.pending = self.taps[:, :0], [0] * len(self.pending)
        return hidden[:, 1:]

    def commit(self, trees: Sequence[DraftTree]) -> list[list[int]]:
        """Let the target judge all trees in one pass: per row the nodes on its own path, and a token more."""
        with self.times.of("verify", self.target.device):
            committed, kept = [], []
            taps, verdicts = self._verify(trees)
            for row, (tree, verified) in enumerate(zip(trees, verdicts, strict=True)):
                passed, following = walk_tree(tree, verified)
                committed.append([*(tree.tokens[node - 1] for node in passed[1:]), following])
                kept.append(passed)
                self.anchors[row] = following
            self._keep(taps, kept)
        return committed

    def _verify(self, trees: Sequence[DraftTree]) -> tuple[Tensor, list[list[int]]]:
        """(taps, the target's own token behind each node) of one pass over all roots and nodes."""
        device = self.target.device
        ids = padded([[a, *tree.tokens] for a, tree in zip(self.anchors, trees, strict=True)]).to(device)
        depths = padded([(0, *tree.depths) for tree in trees]).to(device)
        positions = torch.tensor(self.starts, device=device)[:, None] + depths
        past = torch.arange(max(self.starts), device=device)
        keys = torch.cat((past.expand(len(trees), -1), positions), dim=1)
        visible = ragged_visible(trees, self.starts, ids.shape[1]).to(device)
        mask = model_masks(self.target.config, visible, positions, keys, dtype=self.target.dtype)
        states = self.target.extend(ids, self.layer_ids, cache=self.cache, positions=positions, mask=mask)
        assert states.final is not None
        own = self.choice.tokens(states.final.flatten(0, 1), self.target.head, (positions + 1).flatten())
        return states.taps, own.view_as(ids).tolist()

    def _keep(self, taps: Float[Tensor, "b q kh"], kept: Sequence[Sequence[int]]) -> None:
        """The kept columns of each row stand; no rejected token leaves anything behind."""
        keep_ragged(self.cache, self.starts, kept, window=max(self.starts))
        self.starts = [start + len(columns) for start, columns in zip(self.starts, kept, strict=True)]
        self.pending = [len(columns) for columns in kept]
        columns = padded(kept).to(taps.device)
        self.taps = taps[torch.arange(len(kept), device=taps.device)[:, None], columns]


class RowsLuck(PositionLuck):
    """The luck of several rows, each with its own seed; asked for all rows at once, one behind the other."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._rows = [PositionLuck(seed) for seed in seeds]

    def at(self, positions: Int[Tensor, " p"]) -> Float[Tensor, " p"]:
        parts = positions.view(len(self._rows), -1)
        return torch.cat([luck.at(part) for luck, part in zip(self._rows, parts, strict=True)])

    def select(self, rows: Sequence[int]) -> None:
        self._rows = [self._rows[row] for row in rows]


def chain_tree(tokens: Sequence[int]) -> DraftTree:
    """A chain of drafts as a tree: each node hangs from the one before it."""
    count = len(tokens)
    return DraftTree(
        tokens=tuple(tokens),
        parents=tuple(range(count)),
        depths=tuple(range(1, count + 1)),
        scores=(0.0,) * count,
    )


def ragged_visible(
    trees: Sequence[DraftTree], starts: Sequence[int], queries: int
) -> Bool[Tensor, "rows queries keys"]:
    """Which keys each row's queries see: its own committed tokens, and within its tree its ancestors.

    Queries behind a row's last node are padding: they see the committed tokens, so that no softmax is empty.
    """
    past = max(starts)
    visible = torch.zeros(len(trees), queries, past + queries, dtype=torch.bool)
    for row, (tree, start) in enumerate(zip(trees, starts, strict=True)):
        nodes = len(tree) + 1
        visible[row, :, :start] = True
        visible[row, :nodes, past : past + nodes] = tree.visible(0)
    return visible


def _require_batchable(budget: int | None, sampling: Sampling | None) -> None:
    if budget is not None and budget < 0:
        raise ValueError(f"the budget counts the nodes of a tree, 0 or more, got {budget}")
    if sampling is not None and sampling.method == "rejection" and not sampling.greedy:
        raise ValueError(
            "rejection sampling decodes one prompt at a time (decode_chain); several at once take method "
            "coupling"
        )
