import pytest
import torch

from dflash_lightning.drafter import DrafterCache
from tests.drafter.toy import BLOCK, noise, one_block, run_blocks, toy_drafter
from tests.toy import HIDDEN

SHAPES = {
    "full": {},
    "sliding": {
        "layer_types": ("sliding_attention", "sliding_attention", "full_attention"),
        "sliding_window": 4,
    },
    "causal": {"causal_in_block": True},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_incremental_drafting_equals_recomputation_and_training(shape):
    drafter, taps = toy_drafter(**SHAPES[shape]), noise(9, 3 * HIDDEN, seed=2)
    cache, start = DrafterCache(3), 0
    for round_, new in enumerate((5, 3, 1)):
        block = noise(BLOCK, HIDDEN, seed=10 + round_)
        anchor = start + new
        where = torch.arange(start, anchor + BLOCK)
        with torch.no_grad():
            out = drafter(block[None], taps[None, start:anchor], where[None], None, cache)[0]
            assert cache.length == anchor  # 5, 8, 9: the block left no trace
            recomputed = one_block(drafter, block, taps, anchor)
            torch.testing.assert_close(out, recomputed, atol=1e-12, rtol=0)
            trained = run_blocks(drafter, block[None], torch.cat((taps, taps)), [anchor])[0]
            torch.testing.assert_close(out, trained, atol=1e-12, rtol=0)
        start = anchor


def test_a_round_may_bring_no_new_context():
    drafter, taps, block = toy_drafter(), noise(5, 3 * HIDDEN), noise(BLOCK, HIDDEN, seed=3)
    cache = DrafterCache(3)
    with torch.no_grad():
        first = drafter(block[None], taps[None], torch.arange(9)[None], None, cache)
        again = drafter(block[None], taps[None, 5:], torch.arange(5, 9)[None], None, cache)
    torch.testing.assert_close(first, again, atol=1e-12, rtol=0)


def test_a_shorter_last_block_is_a_block():
    drafter, taps, block = toy_drafter(), noise(5, 3 * HIDDEN), noise(2, HIDDEN, seed=3)
    with torch.no_grad():
        out = drafter(block[None], taps[None], torch.arange(7)[None], None, DrafterCache(3))
    torch.testing.assert_close(out[0], one_block(drafter, block, taps, 5), atol=1e-12, rtol=0)
