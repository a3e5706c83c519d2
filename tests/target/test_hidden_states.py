"""Oracles 6.2 and the target's half of 6.3: which tensor a tap is, and what a forward pass costs."""

import pytest
import torch

from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.target.geometry import drafter_config_for
from dflash_lightning.target.model import Target
from tests.toy import HIDDEN, LAYERS, MASK, VOCAB, toy_llama, toy_model

IDS = torch.randint(0, VOCAB, (2, 9), generator=torch.Generator().manual_seed(7))


@pytest.fixture(scope="module", params=[toy_model, toy_llama], ids=["qwen3", "llama"])
def target(request):
    return Target(request.param())


def hidden_states(target):
    with torch.no_grad():
        return target.model(IDS, output_hidden_states=True, use_cache=False).hidden_states


def count_calls(module, calls):
    return module.register_forward_hook(lambda *_: calls.append(module))


def test_tap_i_is_hidden_state_i_plus_1_bit_for_bit(target):
    every = hidden_states(target)
    for tap in range(LAYERS - 1):
        assert torch.equal(target.tapped_states(IDS, [tap]).taps, every[tap + 1])


def test_the_last_layer_is_tapped_before_the_final_norm(target):
    last = hidden_states(target)[LAYERS]
    tapped = target.tapped_states(IDS, [LAYERS - 1]).taps
    assert not torch.allclose(tapped, last)
    assert torch.equal(target.parts.norm(tapped), last)


@pytest.mark.parametrize("taps", [[1, 3, 5], [5, 1, 3], [2, 2]])
def test_taps_lie_side_by_side_in_the_order_of_the_list(target, taps):
    every = hidden_states(target)
    states = target.tapped_states(IDS, taps)
    assert torch.equal(states.taps, torch.cat([every[tap + 1] for tap in taps], dim=-1))
    assert states.final is None


def test_tap_order_and_columns_of_fc_belong_together(target):
    """Oracle 6.3: permuting both changes nothing, permuting one changes what the drafter says."""
    taps, order = (1, 3, 5), (2, 0, 1)
    config = drafter_config_for(
        target.config, num_layers=2, block_size=4, mask_token_id=MASK, target_layer_ids=taps
    )
    drafter = DFlashDrafter(config)
    weight = drafter.fc.weight.detach().clone()
    permuted = torch.cat([weight.split(HIDDEN, dim=1)[i] for i in order], dim=1)
    block, positions = target.embed(torch.tensor([[7, MASK, MASK, MASK]])), torch.arange(13)[None]

    @torch.no_grad()
    def says(columns, listed):
        drafter.fc.weight.copy_(columns)
        return drafter(block, target.tapped_states(IDS[:1], listed).taps, positions, None)

    right = says(weight, taps)
    both = says(permuted, [taps[i] for i in order])
    torch.testing.assert_close(both, right, rtol=1e-4, atol=1e-4)
    assert (says(permuted, taps) - right).abs().max() > 0.1


def test_final_states_are_the_heads_input(target):
    states = target.tapped_states(IDS, [1, 3], final=True)
    with torch.no_grad():
        logits = target.model(IDS, use_cache=False).logits
    assert torch.equal(states.final @ target.head.T, logits)
    assert torch.equal(states.taps, target.tapped_states(IDS, [1, 3]).taps)
    assert target.tapped_states(IDS, [], final=True).taps.shape == (2, 9, 0)


@pytest.mark.parametrize(
    ("final", "layers_run", "norm_runs"),
    [(False, 4, 0), (True, LAYERS, 1)],  # layers 0 to 3 for a last tap at 3
)
def test_nothing_runs_behind_the_last_tap_and_the_head_never(target, final, layers_run, norm_runs):
    layers, norms, heads = [], [], []
    handles = [count_calls(layer, layers) for layer in target.parts.layers]
    handles += [count_calls(target.parts.norm, norms), count_calls(target.model.lm_head, heads)]
    target.tapped_states(IDS, [1, 3], final=final)
    for handle in handles:
        handle.remove()
    assert (len(layers), len(norms), len(heads)) == (layers_run, norm_runs, 0)


def count_hooks(target):
    return sum(len(layer._forward_hooks) for layer in target.parts.layers)


def test_hooks_are_gone_after_success_and_after_failure(target):
    before = count_hooks(target)
    target.tapped_states(IDS, [1, 3])
    with pytest.raises(IndexError):
        target.tapped_states(torch.full((1, 2), VOCAB + 5), [1, 3])  # no such embedding row
    assert count_hooks(target) == before


def test_states_carry_no_gradient_but_can_enter_a_graph(target):
    taps = target.tapped_states(IDS, [1]).taps
    assert not taps.requires_grad
    weight = torch.ones(HIDDEN, requires_grad=True)
    (taps @ weight).sum().backward()  # inference-mode tensors would refuse to be saved for this
    torch.testing.assert_close(weight.grad, taps.sum((0, 1)))


def test_padding_on_the_right_changes_nothing_before_it(target):
    padded = torch.cat((IDS, torch.zeros(2, 3, dtype=torch.long)), dim=1)
    taps = target.tapped_states(padded, [1, 5]).taps
    torch.testing.assert_close(taps[:, :9], target.tapped_states(IDS, [1, 5]).taps)


def test_autocast_of_a_trainer_does_not_reach_the_target(target):
    with torch.autocast("cpu", torch.bfloat16):
        inside = target.tapped_states(IDS, [5]).taps
    assert torch.equal(inside, target.tapped_states(IDS, [5]).taps)


@pytest.mark.parametrize(
    ("taps", "message"),
    [
        ([1, LAYERS], r"taps \[8\] are not layers of the target, which has layers 0 to 7"),
        ([-1], r"taps \[-1\] are not layers"),
        ([], "the list of taps is empty"),
    ],
)
def test_impossible_taps_are_refused(target, taps, message):
    with pytest.raises(ValueError, match=message):
        target.tapped_states(IDS, taps)
