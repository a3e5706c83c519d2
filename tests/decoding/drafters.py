"""Drafters of known skill, for tests of decoding: random, noisy, perfect, and one that memorised texts."""

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.drafter.config import DrafterConfig
from dflash_lightning.drafter.mask import build_masks
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.target.geometry import drafter_config_for
from dflash_lightning.target.model import Target
from tests.toy import MASK, VOCAB

BLOCK = 4


def toy_drafter_config(target: Target, **changes) -> DrafterConfig:
    config = drafter_config_for(target.config, num_layers=3, block_size=BLOCK, mask_token_id=MASK)
    return dataclasses.replace(config, **changes)


def random_drafter(target: Target, **changes) -> DFlashDrafter:
    return DFlashDrafter(toy_drafter_config(target, initializer_range=0.2, **changes)).eval()


class OracleDrafter(DFlashDrafter):
    """Knows the text: its hidden states are the wanted logits times pinv(head)^T, so the head returns them.

    `skill` is the share of positions where it tells the truth, the same ones whenever it is asked.
    """

    def __init__(self, target: Target, ids: Sequence[int], *, skill: float = 1.0) -> None:
        super().__init__(toy_drafter_config(target))
        generator = torch.Generator().manual_seed(3)
        honest = torch.rand(len(ids), generator=generator) < skill
        wrong = torch.randint(0, VOCAB, (len(ids),), generator=generator)
        self.answers = torch.where(honest, torch.tensor(ids), wrong)
        self.inverse = torch.linalg.pinv(target.head)

    def forward(self, block_embeddings, taps, positions, masks, cache=None) -> Tensor:
        super().forward(block_embeddings, taps, positions, masks, cache)  # keeps the cache as a drafter would
        slots = positions[0, -block_embeddings.shape[1] :].clamp(max=len(self.answers) - 1)
        wanted = 10.0 * F.one_hot(self.answers[slots], VOCAB).float()
        return (wanted @ self.inverse.T)[None]


def prompts(count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(5, 9, (count,), generator=generator).tolist()
    return [torch.randint(2, VOCAB - 1, (length,), generator=generator).tolist() for length in lengths]


def greedy_text(target: Target, prompt: Sequence[int], *, length: int) -> list[int]:
    return list(decode_plain(target, prompt, max_new_tokens=length).token_ids)


def memorising_drafter(
    target: Target, texts: Mapping[tuple[int, ...], Sequence[int]], *, steps: int, **changes
) -> DFlashDrafter:
    """Trained for a moment on prompt -> text: often right, often wrong, and right thanks to the taps."""
    drafter = DFlashDrafter(toy_drafter_config(target, **changes))
    optimizer = torch.optim.AdamW(drafter.parameters(), lr=3e-3)
    batches = [training_batch(target, drafter.config, prompt, text) for prompt, text in texts.items()]
    for step in range(steps):
        inputs, labels = batches[step % len(batches)]
        hidden = drafter(*inputs).view(-1, BLOCK, target.hidden_size)[:, 1:]
        loss = F.cross_entropy((hidden @ target.head.T).flatten(0, 1), labels.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return drafter.eval()


def training_batch(target, config, prompt, text):
    ids = torch.tensor([*prompt, *text])
    anchors = torch.arange(len(prompt), len(ids) - 1)
    slots = anchors[:, None] + torch.arange(BLOCK)
    blocks = torch.full_like(slots, config.mask_token_id)
    blocks[:, 0] = ids[anchors]
    labels = F.pad(ids, (0, BLOCK), value=-100)[slots[:, 1:]]
    taps = target.tapped_states(ids[None], config.target_layer_ids).taps
    positions = torch.cat((torch.arange(len(ids)), slots.flatten()))[None]
    masks = build_masks(anchors[None], torch.ones(1, len(anchors), dtype=bool), len(ids), BLOCK, config)
    return (target.embed(blocks.flatten()[None]), taps, positions, masks), labels
