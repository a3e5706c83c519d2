"""Teacher-forced validation as a loop: sample by sample, anchor by anchor, no mask, no chunk, no batch."""

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
    target, drafter, config = module.target, module.drafter, module.drafter_config
    size, gamma = config.block_size, max(2.0, config.block_size / 2)
    loss = weight = correct = slots = blocks = kept = 0.0
    budgets = module.tree_watch.budgets
    in_trees = [0] * len(budgets)
    for row in range(len(store.samples(split).lengths)):
        ids, mask = (torch.as_tensor(part) for part in store.row(split, row))
        taps = target.tapped_states(ids[None], config.target_layer_ids).taps
        for anchor in valid_anchors(mask.numpy()).tolist():
            block = torch.full((1, size), config.mask_token_id)
            block[0, 0] = ids[anchor]
            positions = torch.cat((torch.arange(anchor), anchor + torch.arange(size)))[None]
            hidden = drafter(target.embed(block), taps[:, :anchor], positions, None)[0]
            streak, unbroken = 0, True
            best = best_of(hidden[1:] @ target.head.T, k=max(budgets))
            for index, budget in enumerate(budgets):
                in_trees[index] += tree_streak(best, ids[anchor + 1 :], mask[anchor + 1 :], budget)
            for slot in range(1, size):
                at = anchor + slot
                if at >= len(ids) or not mask[at]:
                    continue
                logits = hidden[slot] @ target.head.T
                w = math.exp(-(slot - 1) / gamma)
                loss += w * float(F.cross_entropy(logits[None].double(), ids[at][None]))
                weight += w
                right = int(logits.argmax()) == int(ids[at])
                correct += right
                slots += 1
                unbroken &= right
                streak += unbroken
            kept += streak
            blocks += 1
    return {
        "val/loss": loss / weight,
        "val/tau": kept / blocks + 1,
        "val/streak": kept / blocks,
        "val/accuracy": correct / slots,
        **{f"val/tree_tau_{m}": kept / blocks + 1 for m, kept in zip(budgets, in_trees, strict=True)},
    }


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
