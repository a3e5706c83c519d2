"""Draft and verify with a tree of drafts per round: one target pass judges all its paths (spec/dflash.md
4.4).

in    target, drafter, prompt, budget of nodes
out   the target's own text, and the tokens each round committed
law   token for token the text of plain decoding, greedy or with the same seed (fp32), whatever the tree
"""

from collections.abc import Collection, Sequence

import torch

from dflash_lightning.decoding.decoded import Decoded, OnRound, Transcript
from dflash_lightning.decoding.rounds import Rounds, resolve_block_size
from dflash_lightning.decoding.sampling import Sampling
from dflash_lightning.decoding.tree import DraftTree, build_tree, walk_tree
from dflash_lightning.decoding.verify import LOGITS_AT_ONCE
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.objective.marginals import best_tokens
from dflash_lightning.target.attention_masks import model_masks
from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.model import Target


@torch.no_grad()
def decode_tree(
    target: Target,
    drafter: DFlashDrafter,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    budget: int,
    stop_ids: Collection[int] = (),
    block_size: int | None = None,
    sampling: Sampling | None = None,
    on_round: OnRound | None = None,
) -> Decoded:
    """Decode one prompt with trees of drafts.

    Args:
        budget: drafted nodes per tree; 0 drafts nothing.
        stop_ids, block_size, sampling, on_round: as in decode_chain. Sampling by coupling only.

    Raises:
        ValueError: empty prompt, block size or budget out of range, rejection sampling, or a target that
            cannot forget rejected tokens or takes no mask.
    """
    block_size = resolve_block_size(drafter, block_size)
    transcript = Transcript(max_new_tokens, stop_ids, on_round)
    trees = Trees(target, drafter, prompt_ids, block_size=block_size, budget=budget, sampling=sampling)
    if transcript.left > 0:
        transcript.add([trees.prefill()])
    while transcript.left > 0:
        tree = trees.draft(max_depth=transcript.left - 1)  # the target adds one of its own
        transcript.add(trees.commit(tree))
    return transcript.result()


class Trees(Rounds):
    """Rounds whose drafts form a tree."""

    def __init__(
        self,
        target: Target,
        drafter: DFlashDrafter,
        prompt_ids: Sequence[int],
        *,
        block_size: int,
        budget: int,
        sampling: Sampling | None = None,
    ) -> None:
        if budget < 0:
            raise ValueError(f"the budget counts the nodes of a tree, 0 or more, got {budget}")
        if sampling is not None and sampling.method == "rejection" and not sampling.greedy:
            raise ValueError(
                "a tree's paths share drafts, so rejection sampling does not apply; take method coupling"
            )
        super().__init__(target, drafter, prompt_ids, block_size=block_size, sampling=sampling)
        self.budget = budget

    def draft(self, *, max_depth: int) -> DraftTree:
        """The best tree over the drafter's distributions of the block_size - 1 slots, or the first of
        them."""
        if self.block_size == 1 or self.budget == 0:
            return build_tree([], [], 0)
        head = self.target.head
        rows = max(1, LOGITS_AT_ONCE // head.shape[0])
        best = best_tokens(self.draft_states()[:max_depth], head, k=self.budget, chunk=rows)
        return build_tree(best.log_probs.tolist(), best.token_ids.tolist(), self.budget)

    def commit(self, tree: DraftTree) -> list[int]:
        """Let the target judge the tree: the nodes on its own path, and one more token, the next anchor."""
        states = self.verify_tree(tree)
        verified = self.own_tokens(states, tree.positions(self.start + 1)).tolist()
        passed, following = walk_tree(tree, verified)
        self.keep(states, passed, following)
        return [*(tree.tokens[node - 1] for node in passed[1:]), following]

    def verify_tree(self, tree: DraftTree) -> TargetStates:
        """The target's states at root and nodes, each seeing the past and its own ancestors only."""
        device = self.target.device
        positions = tree.positions(self.start).to(device)[None]
        keys = torch.cat((torch.arange(self.start, device=device)[None], positions), dim=1)
        visible = tree.visible(self.start).to(device)[None]
        mask = model_masks(self.target.config, visible, positions, keys, dtype=self.target.dtype)
        return self.verify(self.anchor.new_tensor(tree.tokens), positions=positions, mask=mask)
