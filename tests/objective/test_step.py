"""Drafter, blocks and objective together on the toy: what a training step is made of."""

import torch

from dflash_lightning.drafter import build_blocks
from dflash_lightning.objective import CrossEntropy, head_loss
from tests.drafter.toy import BLOCK, noise, toy_drafter
from tests.toy import HIDDEN, MASK, VOCAB

EMBED, HEAD = noise(VOCAB, HIDDEN, seed=5).requires_grad_(), noise(VOCAB, HIDDEN, seed=6).requires_grad_()


def numerator_and_weight(drafter, input_ids, loss_mask, taps, anchors, keep):
    """Sum of weighted losses of these rows, and the sum of the weights."""
    context = input_ids.shape[1]
    blocks = build_blocks(input_ids, loss_mask, anchors, keep, block_size=BLOCK, mask_token_id=MASK)
    embeddings = EMBED.detach()[blocks.block_ids].flatten(1, 2)
    masks = drafter.build_masks(anchors, keep, context)
    hidden = drafter(embeddings, taps, blocks.with_context(context), masks)
    slots = hidden.unflatten(1, (-1, BLOCK))[:, :, 1:]
    losses = head_loss(slots[blocks.supervised], HEAD, blocks.labels[blocks.supervised], chunk=4)
    token_loss = losses.loss.new_zeros(blocks.labels.shape)
    token_loss[blocks.supervised] = losses.loss
    weights = CrossEntropy().weights(token_loss, blocks.supervised)
    return (token_loss * weights).sum(), weights.sum()


def batch():
    """Two rows of unequal supervision: full blocks, and one short block beside one that is not kept."""
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(VOCAB - 1, (2, 12), generator=generator)
    loss_mask = torch.tensor([[0, 0, *[1] * 10], [0] * 10 + [1, 1]])
    anchors, keep = torch.tensor([[2, 5], [10, 0]]), torch.tensor([[True, True], [True, False]])
    return input_ids, loss_mask, noise(2, 12, 3 * HIDDEN, seed=7), anchors, keep


def gradients(drafter, *parts):
    drafter.zero_grad()
    total = torch.zeros(())
    for part in parts:
        numerator, weight = numerator_and_weight(drafter, *part)
        numerator.backward()
        total = total + weight
    return {name: p.grad / total for name, p in drafter.named_parameters()}


def test_every_drafter_parameter_learns_and_the_borrowed_tables_do_not():
    drafter = toy_drafter()
    grads = gradients(drafter, batch())
    assert len(grads) == 36
    for name, grad in grads.items():
        assert grad.isfinite().all(), name
        assert grad.abs().max() > 0, name
    assert EMBED.grad is None
    assert HEAD.grad is None


def test_raw_numerators_over_the_summed_weight_do_not_depend_on_the_split():
    drafter = toy_drafter()
    rows = [tuple(part[i : i + 1] for part in batch()) for i in range(2)]
    whole, split = gradients(drafter, batch()), gradients(drafter, *rows)
    for name, grad in whole.items():
        torch.testing.assert_close(split[name], grad, atol=1e-12, rtol=1e-9)


def test_a_batch_without_any_anchor_costs_nothing_and_gives_zero_gradients():
    input_ids, loss_mask, taps, anchors, keep = batch()
    numerator, weight = numerator_and_weight(
        drafter := toy_drafter(),
        input_ids,
        loss_mask,
        taps,
        torch.zeros_like(anchors),
        torch.zeros_like(keep),
    )
    numerator.backward()
    assert (numerator.item(), weight.item()) == (0, 0)
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in drafter.parameters())
