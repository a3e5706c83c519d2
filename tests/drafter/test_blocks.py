import torch

from dflash_lightning.drafter import build_blocks
from dflash_lightning.objective.weights import position_weights

M = 99


def blocks_of(input_ids, loss_mask, anchors, *, keep=None, block_size=4, lengths=None):
    anchors = torch.tensor([anchors])
    return build_blocks(
        torch.tensor([input_ids]),
        torch.tensor([loss_mask]),
        anchors,
        torch.tensor([keep]) if keep else torch.ones_like(anchors, dtype=torch.bool),
        block_size=block_size,
        mask_token_id=M,
        lengths=None if lengths is None else torch.tensor([lengths]),
    )


IDS, LOSS = list(range(10, 18)), [0, 0, 1, 1, 1, 0, 1, 1]


def test_blocks_labels_and_weights_of_the_worked_example():
    blocks = blocks_of(IDS, LOSS, [2, 6])
    assert blocks.block_ids.tolist() == [[[12, M, M, M], [16, M, M, M]]]
    assert blocks.with_context(8).tolist() == [[*range(8), 2, 3, 4, 5, 6, 7, 8, 9]]
    assert blocks.labels[0, 0].tolist() == [13, 14, 15]
    assert blocks.labels[0, 1, 0] == 17
    assert blocks.supervised.tolist() == [[[True, True, False], [True, False, False]]]
    weights = position_weights(4, 2.0) * blocks.supervised
    torch.testing.assert_close(weights.sum(), torch.tensor(2.606531), atol=1e-6, rtol=0)


def test_a_block_may_reach_past_the_end_with_its_tail_unsupervised():
    blocks = blocks_of([1, 2, 3, 4], [1, 1, 1, 1], [2], block_size=5)
    assert blocks.supervised.tolist() == [[[True, False, False, False]]]
    assert blocks.labels.tolist() == [[[4, 4, 4, 4]]]  # stand-ins beyond the end: valid ids, never trained


def test_a_block_that_is_not_kept_is_all_masks_and_trains_nothing():
    blocks = blocks_of(IDS, [1] * 8, [3, 0], keep=[True, False])
    assert blocks.block_ids[0, 1].tolist() == [M] * 4
    assert blocks.positions[0, 1].tolist() == [0, 1, 2, 3]
    assert not blocks.supervised[0, 1].any()


def test_real_length_cuts_supervision_whatever_the_loss_mask_says():
    assert blocks_of(IDS, [1] * 8, [4], lengths=6).supervised.tolist() == [[[True, False, False]]]


def test_a_hole_in_the_loss_mask_does_not_stop_later_slots():
    assert blocks_of(IDS, [1, 1, 0, 1, 1, 0, 0, 0], [0]).supervised.tolist() == [[[True, False, True]]]


def test_slot_k_is_labelled_with_the_token_at_anchor_plus_k():
    for anchor in range(20):
        blocks = blocks_of(list(range(30)), [1] * 30, [anchor], block_size=8)
        assert blocks.labels.tolist() == [[[anchor + k for k in range(1, 8)]]]
        assert blocks.block_ids[0, 0, 0] == anchor
