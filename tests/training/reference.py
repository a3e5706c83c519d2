"""Teacher-forced validation as a loop: sample by sample, anchor by anchor, no mask, no chunk, no batch."""

import math
from collections.abc import Mapping

import torch
from torch.nn import functional as F

from dflash_lightning.drafter.anchors import valid_anchors


@torch.no_grad()
def validate_slowly(module, store, split: str = "validation") -> Mapping[str, float]:
    """The values that `validation` logs, for a CrossEntropy module that was set up and a token store."""
    target, drafter, config = module.target, module.drafter, module.drafter_config
    size, gamma = config.block_size, max(2.0, config.block_size / 2)
    loss = weight = correct = slots = blocks = kept = 0.0
    for row in range(len(store.samples(split).lengths)):
        ids, mask = (torch.as_tensor(part) for part in store.row(split, row))
        taps = target.tapped_states(ids[None], config.target_layer_ids).taps
        for anchor in valid_anchors(mask.numpy()).tolist():
            block = torch.full((1, size), config.mask_token_id)
            block[0, 0] = ids[anchor]
            positions = torch.cat((torch.arange(anchor), anchor + torch.arange(size)))[None]
            hidden = drafter(target.embed(block), taps[:, :anchor], positions, None)[0]
            streak, unbroken = 0, True
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
    }
