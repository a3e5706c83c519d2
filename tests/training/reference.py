"""Teacher-forced figures as a loop: sample by sample, anchor by anchor, no mask, no chunk, no batch."""

import math
from collections.abc import Mapping

import torch
from torch.nn import functional as F

from dflash_lightning.decoding.tree import build_tree
from dflash_lightning.drafter.anchors import valid_anchors
from dflash_lightning.objective.marginals import best_of


@torch.no_grad()
def validate_slowly(module, store, split: str = "validation") -> Mapping[str, float]:
    """The values that `validation` logs, for a CrossEntropy module that was set up and a token store."""
    target, config = module.target, module.drafter_config
    size, gamma = config.block_size, max(2.0, config.block_size / 2)
    loss = weight = correct = slots = blocks = kept = 0.0
    budgets = module.tree_watch.budgets
    in_trees = [0] * len(budgets)
    for row in range(len(store.samples(split).lengths)):
        ids, mask = (torch.as_tensor(part) for part in store.row(split, row))
        taps = target.tapped_states(ids[None], config.target_layer_ids).taps
        for anchor in valid_anchors(mask.numpy()).tolist():
            logits = logits_slowly(module, ids, taps, anchor)
            text, wanted = ids[anchor + 1 :], mask[anchor + 1 :]
            best = best_of(logits, k=max(budgets))
            for index, budget in enumerate(budgets):
                in_trees[index] += tree_streak(best, text, wanted, budget)
            for slot in supervised_slots(wanted, size):
                w = math.exp(-slot / gamma)
                loss += w * float(F.cross_entropy(logits[slot][None].double(), text[slot][None]))
                weight += w
                correct += int(logits[slot].argmax()) == int(text[slot])
                slots += 1
            kept += chain_streak(logits, text, wanted)
            blocks += 1
    return {
        "val/loss": loss / weight,
        "val/tau": kept / blocks + 1,
        "val/streak": kept / blocks,
        "val/accuracy": correct / slots,
        **{f"val/tree_tau_{m}": kept / blocks + 1 for m, kept in zip(budgets, in_trees, strict=True)},
    }


@torch.no_grad()
def tree_sums_slowly(module, batch) -> list[int]:
    """Of the anchors of a TokenBatch: blocks with supervision, drafts that a chain would keep of them, and a
    tree of each budget."""
    budgets = module.tree_watch.budgets
    sums = [0] * (2 + len(budgets))
    for row, length in enumerate(batch.lengths.tolist()):
        ids, mask = batch.input_ids[row, :length], batch.loss_mask[row, :length]
        taps = module.target.tapped_states(ids[None], module.drafter_config.target_layer_ids).taps
        for anchor in batch.anchors[row][batch.keep[row]].tolist():
            text, wanted = ids[anchor + 1 :], mask[anchor + 1 :]
            if not supervised_slots(wanted, module.drafter_config.block_size):
                continue
            logits = logits_slowly(module, ids, taps, anchor)
            best = best_of(logits, k=max(budgets))
            trees = [tree_streak(best, text, wanted, budget) for budget in budgets]
            found = (1, chain_streak(logits, text, wanted), *trees)
            sums = [one + other for one, other in zip(sums, found, strict=True)]
    return sums


def logits_slowly(module, ids, taps, anchor: int):
    """[block_size - 1, vocabulary] of the slots behind one anchor, which sees the taps before it."""
    target, config = module.target, module.drafter_config
    block = torch.full((1, config.block_size), config.mask_token_id)
    block[0, 0] = ids[anchor]
    positions = torch.cat((torch.arange(anchor), anchor + torch.arange(config.block_size)))[None]
    hidden = module.drafter(target.embed(block), taps[:, :anchor], positions, None)[0]
    return hidden[1:] @ target.head.T


def supervised_slots(wanted, size: int) -> list[int]:
    """Of the drafted slots, from 0, those whose token is there and was said by the assistant."""
    return [slot for slot in range(size - 1) if slot < len(wanted) and wanted[slot]]


def chain_streak(logits, text, wanted) -> int:
    """Supervised tokens before the first that was not guessed."""
    guessed = [int(logits[i].argmax()) == int(text[i]) for i in supervised_slots(wanted, len(logits) + 1)]
    return [*guessed, False].index(False)


def tree_streak(best, ids, mask, budget: int) -> int:
    """Supervised tokens before the text leaves the tree; one that is not supervised counts as guessed."""
    tree = build_tree(best.log_probs.tolist(), best.token_ids.tolist(), budget)
    children, node, streak = tree.children(), 0, 0
    for slot in range(best.token_ids.shape[0]):
        supervised = slot < len(ids) and bool(mask[slot])
        step = (node, int(ids[slot] if supervised else best.token_ids[slot, 0]))
        if step not in children:
            break
        node, streak = children[step], streak + supervised
    return streak
