import pytest
import torch

from dflash_lightning.drafter.attention import attend
from dflash_lightning.drafter.mask import build_masks
from tests.drafter.toy import drafter_config, noise

ANCHORS = torch.tensor([[2, 9, 40], [0, 17, 0]])
KEEP = torch.tensor([[True, True, True], [True, True, False]])


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")  # slow, exact, fine here
def test_flex_and_sdpa_agree_forward():
    config = drafter_config()
    heads = (2, 12, 4, 16), (2, 53, 2, 16), (2, 53, 2, 16)
    q, k, v = (noise(*shape, seed=i, dtype=torch.float32) for i, shape in enumerate(heads))
    both = [build_masks(ANCHORS, KEEP, 41, 4, config, attention=kernel).full for kernel in ("sdpa", "flex")]
    sdpa, flex = (attend(q, k, v, mask) for mask in both)
    torch.testing.assert_close(sdpa, flex, atol=2e-6, rtol=0)


def test_no_mask_means_everything_is_visible_not_causal():
    q, k, v = (noise(1, 3, 2, 4, seed=i) for i in range(3))
    by_hand = torch.einsum("bqhd,bkhd->bhqk", q, k).div(2).softmax(-1)
    expected = torch.einsum("bhqk,bkhd->bqhd", by_hand, v).flatten(2)
    torch.testing.assert_close(attend(q, k, v, None), expected, atol=1e-12, rtol=0)
