"""One micro-batch through the drafter: (TokenBatch, TargetStates) -> a loss and a verdict for every slot.

in    rows of token ids with anchors; the target's tapped hidden states of those rows
out   BlockOutcome: per anchor block and drafted slot the loss, its weight, and whether the guess is right
law   nothing is averaged here: the caller sums, over the window and all ranks (spec/dflash.md 2.6.1)
"""

# b rows, s padded tokens, n anchor blocks a row, k = block size - 1 drafted slots (slot 0 is the anchor)

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dflash_lightning.data.batch import TokenBatch
from dflash_lightning.drafter.blocks import Blocks, build_blocks
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.objective.kinds import Objective
from dflash_lightning.objective.loss import Teacher, head_loss
from dflash_lightning.objective.marginals import Marginals, best_tokens
from dflash_lightning.objective.tree_acceptance import tree_streaks
from dflash_lightning.target.ends import TargetEnds
from dflash_lightning.target.hidden_states import TargetStates
from dflash_lightning.target.loading import Target


@dataclass(frozen=True)
class BlockOutcome:
    """Drafted slots of a micro-batch. Unsupervised slots have loss 0, weight 0 and correct False."""

    loss: Float[Tensor, "b n k"]
    weight: Float[Tensor, "b n k"]
    supervised: Bool[Tensor, "b n k"]
    correct: Bool[Tensor, "b n k"]
    tree_streaks: Int[Tensor, "b n budgets"] | None = None
    """Drafted tokens that a tree of each budget would have kept; None where nobody asked."""

    @property
    def numerator(self) -> Tensor:
        """Sum of weight x loss: what goes backward."""
        return (self.loss * self.weight).sum()


def draft_blocks(
    batch: TokenBatch,
    states: TargetStates,
    *,
    target: Target | TargetEnds,
    drafter: DFlashDrafter,
    objective: Objective,
    head_chunk: int,
    tree_budgets: Sequence[int] = (),
) -> BlockOutcome:
    """Draft all anchor blocks of `batch` at once and score them against the real tokens (spec 2.10).

    With `tree_budgets` also by trees of drafts, at the price of one more pass through the head.
    """
    config = drafter.config
    blocks = build_blocks(
        batch.input_ids,
        batch.loss_mask,
        batch.anchors,
        batch.keep,
        block_size=config.block_size,
        mask_token_id=config.mask_token_id,
    )
    context = batch.input_ids.shape[1]
    dtype = drafter.fc.weight.dtype
    # The residual stream stays in fp32; under autocast the taps need no copy, fc rounds them anyway.
    autocast = torch.is_autocast_enabled(batch.input_ids.device.type)
    hidden = drafter(
        target.embed(blocks.block_ids.flatten(1)).to(dtype),
        states.taps if autocast else states.taps.to(dtype),
        blocks.with_context(context),
        drafter.build_masks(batch.anchors, batch.keep, context),
    )
    drafted = hidden.unflatten(1, (-1, config.block_size))[:, :, 1:]  # slot 0 never reaches the head
    outcome = _score(drafted, blocks, states, target=target, objective=objective, head_chunk=head_chunk)
    if not tree_budgets:
        return outcome
    trees = _in_trees(drafted.detach(), blocks, target.head, head_chunk=head_chunk, budgets=tree_budgets)
    return replace(outcome, tree_streaks=trees)


def _score(
    drafted: Float[Tensor, "b n k h"],
    blocks: Blocks,
    states: TargetStates,
    *,
    target: Target | TargetEnds,
    objective: Objective,
    head_chunk: int,
) -> BlockOutcome:
    supervised = blocks.supervised
    if not supervised.any():  # keep the graph, so that every rank's backward pass reduces the same gradients
        loss = drafted.float().sum(-1) * 0.0
        return BlockOutcome(loss, torch.zeros_like(loss), supervised, supervised)
    picked = head_loss(
        drafted[supervised],
        target.head,
        blocks.labels[supervised],
        chunk=head_chunk,
        teacher=_teacher(objective, states, blocks),
    )
    loss = picked.loss.new_zeros(supervised.shape).masked_scatter(supervised, picked.loss)
    correct = torch.zeros_like(supervised).masked_scatter(supervised, picked.correct)
    return BlockOutcome(loss, objective.weights(loss.detach(), supervised), supervised, correct)


@torch.no_grad()
def _in_trees(
    drafted: Float[Tensor, "b n k h"],
    blocks: Blocks,
    head: Float[Tensor, "v h"],
    *,
    head_chunk: int,
    budgets: Sequence[int],
) -> Int[Tensor, "b n budgets"]:
    """All slots of a block shape its tree, those without supervision, too: decoding does not know them."""
    alive = blocks.supervised.any(-1)
    streaks = blocks.labels.new_zeros(*alive.shape, len(budgets))
    if alive.any():
        best = best_tokens(drafted[alive].flatten(0, 1), head, k=max(budgets), chunk=head_chunk)
        slots = Marginals(*(tensor.view(-1, drafted.shape[2], tensor.shape[1]) for tensor in best))
        streaks[alive] = tree_streaks(slots, blocks.labels[alive], blocks.supervised[alive], budgets=budgets)
    return streaks


def _teacher(objective: Objective, states: TargetStates, blocks: Blocks) -> Teacher | None:
    """The target's final states one position before each supervised slot: they predict that slot's token."""
    if not objective.needs_target_logits:
        return None
    assert states.final is not None
    row, block, slot = blocks.supervised.nonzero(as_tuple=True)
    return objective.teacher(states.final[row, blocks.positions[row, block, slot]])
