"""Oracles 6.22, 6.23 in the decoding loop: cached, from scratch and batched as in training, one answer."""

import pytest
import torch

from dflash_lightning.decoding.chain import Chain
from dflash_lightning.drafter.mask import build_masks
from dflash_lightning.drafter.model import DFlashDrafter
from tests.decoding.conftest import LENGTH
from tests.decoding.drafters import BLOCK


class Recording(DFlashDrafter):
    """Keeps what it returned."""

    def forward(self, *arguments):
        self.last = super().forward(*arguments)
        return self.last


@pytest.fixture(params=["memorising", "mixed"])
def drafter(request):
    return request.getfixturevalue(request.param)


@torch.no_grad()
def test_cached_rounds_equal_recomputation_and_one_training_forward(target, drafter, texts):
    recording = Recording(drafter.config).eval()
    recording.load_state_dict(drafter.state_dict())
    prompt, text = next(iter(texts.items()))
    chain = Chain(target, recording, prompt, block_size=BLOCK)
    chain.prefill()
    anchors, cached = [], []
    while chain.start + BLOCK < len(prompt) + LENGTH:
        anchors.append(chain.start)
        drafted = chain.draft()
        cached.append(recording.last)
        chain.commit(drafted)
    assert len({later - earlier for earlier, later in zip(anchors, anchors[1:], strict=False)}) > 1

    ids = torch.tensor([[*prompt, *text]])
    taps = target.tapped_states(ids, recording.config.target_layer_ids).taps
    blocks = torch.full((1, len(anchors), BLOCK), recording.config.mask_token_id)
    blocks[0, :, 0] = ids[0, anchors]
    slots = torch.tensor(anchors)[:, None] + torch.arange(BLOCK)
    for index, anchor in enumerate(anchors):
        scratch = drafter(
            target.embed(blocks[:, index]), taps[:, :anchor], torch.arange(anchor + BLOCK)[None], None
        )
        torch.testing.assert_close(cached[index], scratch, rtol=1e-3, atol=1e-3)

    keep = torch.ones(1, len(anchors), dtype=torch.bool)
    masks = build_masks(torch.tensor([anchors]), keep, ids.shape[1], BLOCK, recording.config)
    positions = torch.cat((torch.arange(ids.shape[1]), slots.flatten()))[None]
    batched = drafter(target.embed(blocks.flatten(1)), taps, positions, masks)
    torch.testing.assert_close(torch.cat(cached, dim=1), batched, rtol=1e-3, atol=1e-3)
    shifted = drafter(target.embed(blocks.flatten(1)), taps.roll(1, 1), positions, masks)
    assert (shifted - batched).abs().max() > 0.1  # the tolerance above could have told
