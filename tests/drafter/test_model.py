import pytest
import torch

from dflash_lightning.drafter import BlockMasks, DFlashDrafter
from dflash_lightning.drafter.rotary import rotary_tables
from tests.drafter.toy import (
    BLOCK,
    block_positions,
    drafter_config,
    noise,
    one_block,
    reference,
    run_blocks,
    toy_drafter,
)
from tests.toy import HIDDEN

ANCHORS = [0, 2, 5, 5, 11]
CONTEXT = 12


@pytest.fixture
def slots():
    return noise(len(ANCHORS), BLOCK, HIDDEN, seed=1)


@pytest.fixture
def taps():
    return noise(CONTEXT, 3 * HIDDEN, seed=2)


class TestForward:
    def test_all_blocks_at_once_equal_one_block_at_a_time_and_the_spec_spelled_out(self, slots, taps):
        drafter = toy_drafter()
        batched = run_blocks(drafter, slots, taps, ANCHORS)
        for j, anchor in enumerate(ANCHORS):
            alone = one_block(drafter, slots[j], taps, anchor)
            torch.testing.assert_close(batched[j], alone, atol=1e-12, rtol=0)
            expected = reference(drafter, slots[j], taps, anchor)
            torch.testing.assert_close(alone, expected, atol=1e-6, rtol=0)  # angles are fp32 in both

    def test_fp32_agrees_with_fp64(self, slots, taps):
        exact = run_blocks(toy_drafter(), slots, taps, ANCHORS)
        single = run_blocks(toy_drafter(torch.float32), slots.float(), taps.float(), ANCHORS)
        torch.testing.assert_close(single.double(), exact, atol=1e-4, rtol=0)

    def test_the_newest_context_row_matters(self, slots, taps):
        drafter = toy_drafter()
        where = torch.cat((torch.arange(CONTEXT - 1), CONTEXT + torch.arange(BLOCK)))
        without = drafter(slots[:1], taps[None, :-1], where[None], None)[0]
        assert (without - one_block(drafter, slots[0], taps, CONTEXT)).abs().max() > 0.1

    def test_a_batch_of_rows_equals_the_rows_alone(self, slots, taps):
        drafter = toy_drafter()
        anchors, keep = torch.tensor([[2, 7], [4, 0]]), torch.tensor([[True, True], [True, False]])
        embeddings, features = noise(2, 2 * BLOCK, HIDDEN, seed=3), noise(2, CONTEXT, 3 * HIDDEN, seed=4)
        where = torch.stack([block_positions(CONTEXT, row) for row in anchors.tolist()])
        out = drafter(embeddings, features, where, drafter.build_masks(anchors, keep, CONTEXT))
        first = run_blocks(drafter, embeddings[0].view(2, BLOCK, -1), features[0], [2, 7])
        second = run_blocks(drafter, embeddings[1].view(2, BLOCK, -1)[:1], features[1], [4])
        torch.testing.assert_close(out[0], first.flatten(0, 1), atol=1e-12, rtol=0)
        torch.testing.assert_close(out[1, :BLOCK], second[0], atol=1e-12, rtol=0)
        assert out.isfinite().all()

    def test_column_blocks_of_fc_follow_the_order_of_the_taps(self, slots, taps):
        drafter = toy_drafter()
        out = run_blocks(drafter, slots, taps, ANCHORS)
        swapped = taps.view(CONTEXT, 3, HIDDEN)[:, [2, 0, 1]].flatten(1)
        assert (run_blocks(drafter, slots, swapped, ANCHORS) - out).abs().max() > 0.1
        with torch.no_grad():
            columns = drafter.fc.weight.view(HIDDEN, 3, HIDDEN)
            columns.copy_(columns[:, [2, 0, 1]].clone())
        torch.testing.assert_close(run_blocks(drafter, slots, swapped, ANCHORS), out, atol=1e-12, rtol=0)


class TestInvariances:
    @pytest.mark.parametrize("j", range(len(ANCHORS)))
    def test_context_at_or_after_the_anchor_never_reaches_a_block(self, slots, taps, j):
        drafter, anchor = toy_drafter(), ANCHORS[j]
        out = run_blocks(drafter, slots, taps, ANCHORS)[j]
        later, earlier = taps.clone(), taps.clone()
        later[anchor:] = noise(CONTEXT - anchor, 3 * HIDDEN, seed=9)
        assert torch.equal(run_blocks(drafter, slots, later, ANCHORS)[j], out)
        if anchor:
            earlier[anchor - 1] += 1
            assert not torch.equal(run_blocks(drafter, slots, earlier, ANCHORS)[j], out)

    def test_a_later_overlapping_block_does_not_leak_into_an_earlier_one(self):
        drafter = toy_drafter(torch.float32, block_size=16)
        embeddings, features = (
            noise(2, 16, HIDDEN, dtype=torch.float32),
            noise(24, 3 * HIDDEN, dtype=torch.float32),
        )
        out = run_blocks(drafter, embeddings, features, [10, 13])
        features[20] += 1
        assert torch.equal(run_blocks(drafter, embeddings, features, [10, 13]), out)
        features[11] += 1
        changed = run_blocks(drafter, embeddings, features, [10, 13])
        assert torch.equal(changed[0], out[0])  # bit for bit
        assert not torch.equal(changed[1], out[1])

    def test_blocks_do_not_see_each_other(self, slots, taps):
        drafter = toy_drafter()
        out = run_blocks(drafter, slots, taps, ANCHORS)
        slots[2] += 1
        changed = (run_blocks(drafter, slots, taps, ANCHORS) - out).abs().amax((1, 2)) > 0
        assert changed.tolist() == [False, False, True, False, False]

    @pytest.mark.parametrize("causal", [False, True])
    def test_slots_see_both_ways_unless_the_block_is_causal(self, slots, taps, causal):
        drafter = toy_drafter(causal_in_block=causal)
        for run in (
            lambda s: run_blocks(drafter, s[None], taps, [5])[0],
            lambda s: one_block(drafter, s, taps, 5),
        ):
            before = run(slots[0])
            touched = slots[0].clone()
            touched[3] += 1
            changed = (run(touched) - before).abs().amax(1) > 0
            assert changed.tolist() == [not causal, not causal, not causal, True]

    def test_right_padding_changes_nothing(self, slots, taps):
        drafter = toy_drafter()
        padded = torch.cat((taps, 100 * noise(7, 3 * HIDDEN, seed=5)))
        before, after = (run_blocks(drafter, slots, features, ANCHORS) for features in (taps, padded))
        torch.testing.assert_close(after, before, atol=1e-12, rtol=0)

    def test_only_differences_of_positions_matter(self, slots, taps):
        drafter = toy_drafter()
        where = block_positions(CONTEXT, ANCHORS)
        out = run_blocks(drafter, slots, taps, ANCHORS)
        assert (run_blocks(drafter, slots, taps, ANCHORS, where=where + 37) - out).abs().max() < 1e-5
        where[CONTEXT:] += 1
        moved = (run_blocks(drafter, slots, taps, ANCHORS, where=where) - out).abs().amax((1, 2))
        assert moved[0] < 1e-5  # the anchor-0 block has no context to be away from
        assert (moved[1:] > 1e-3).all()

    def test_reordering_anchors_permutes_the_blocks(self, slots, taps):
        drafter, order = toy_drafter(), [3, 0, 4, 1, 2]
        out = run_blocks(drafter, slots, taps, ANCHORS)
        shuffled = run_blocks(drafter, slots[order], taps, [ANCHORS[j] for j in order])
        torch.testing.assert_close(shuffled, out[order], atol=1e-12, rtol=0)


class TestParameters:
    def test_names_and_shapes_are_those_of_the_released_checkpoints(self):
        config = drafter_config(
            hidden_size=4096,
            vocab_size=151_936,
            num_layers=5,
            num_heads=32,
            num_kv_heads=8,
            head_dim=128,
            intermediate_size=12_288,
            target_layer_ids=(1, 9, 17, 25, 33),
            num_target_layers=36,
        )
        with torch.device("meta"):
            shapes = {name: tuple(p.shape) for name, p in DFlashDrafter(config).state_dict().items()}
        layer = {
            "input_layernorm": (4096,),
            "post_attention_layernorm": (4096,),
            "self_attn.q_proj": (4096, 4096),
            "self_attn.k_proj": (1024, 4096),
            "self_attn.v_proj": (1024, 4096),
            "self_attn.o_proj": (4096, 4096),
            "self_attn.q_norm": (128,),
            "self_attn.k_norm": (128,),
            "mlp.gate_proj": (12_288, 4096),
            "mlp.up_proj": (12_288, 4096),
            "mlp.down_proj": (4096, 12_288),
        }
        expected = {f"layers.{i}.{name}.weight": shape for i in range(5) for name, shape in layer.items()}
        expected |= {"fc.weight": (4096, 20_480), "hidden_norm.weight": (4096,), "norm.weight": (4096,)}
        assert shapes == expected
        assert len(shapes) == 58

    @pytest.mark.parametrize(
        ("hidden", "inner", "total"), [(4096, 12_288, 1_048_626_432), (2560, 9728, 537_427_200)]
    )
    def test_parameter_totals(self, hidden, inner, total):
        config = drafter_config(
            hidden_size=hidden,
            num_layers=5,
            num_heads=32,
            num_kv_heads=8,
            head_dim=128,
            intermediate_size=inner,
            target_layer_ids=(1, 9, 17, 25, 33),
            num_target_layers=36,
        )
        with torch.device("meta"):
            drafter = DFlashDrafter(config)
        assert sum(p.numel() for p in drafter.parameters()) == total

    def test_fresh_weights_come_from_the_seed_alone(self):
        torch.manual_seed(3)
        before = torch.get_rng_state()
        first, same, other = (DFlashDrafter(drafter_config(), seed=seed) for seed in (0, 0, 1))
        assert torch.equal(before, torch.get_rng_state())
        assert torch.equal(first.fc.weight, same.fc.weight)
        assert not torch.equal(first.fc.weight, other.fc.weight)
        other.reset_parameters(0)
        assert all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))
        assert abs(first.fc.weight.std() - 0.25) < 0.01
        assert torch.equal(first.norm.weight, torch.ones(HIDDEN))

    def test_there_are_no_buffers(self):
        assert list(toy_drafter().buffers()) == []


class TestPrecision:
    def test_rotary_frequencies_are_fp32_whatever_the_module_was_cast_to(self):
        cos, sin = rotary_tables(torch.tensor([[1]]), head_dim=16, theta=1e6)
        assert cos.dtype == sin.dtype == torch.float32
        assert abs(float(torch.atan2(sin, cos)[0, 0, 0, 1]) - 0.177828) < 1e-6  # rounded to bf16: .177734

    def test_a_bf16_drafter_keeps_its_angles_at_far_positions(self):
        """Moving everything by 30,000 positions must cost a bf16 drafter no more than rounding does."""
        drafter = toy_drafter(torch.bfloat16)
        embeddings = noise(1, BLOCK, HIDDEN, dtype=torch.bfloat16)
        features = noise(1, CONTEXT, 3 * HIDDEN, dtype=torch.bfloat16)
        where = block_positions(CONTEXT, [CONTEXT])[None]
        near, far = (drafter(embeddings, features, where + start, None).float() for start in (0, 30_000))
        assert (near - far).square().mean().sqrt() < 0.05

    def test_autocast_stays_near_fp32_and_gradients_are_fp32(self):
        drafter = toy_drafter(torch.float32)
        embeddings, features = (
            noise(*shape, dtype=torch.float32) for shape in ((1, 8, HIDDEN), (1, 12, 192))
        )
        anchors = torch.tensor([[4, 9]])
        masks = drafter.build_masks(anchors, torch.ones_like(anchors, dtype=torch.bool), 12)
        where = block_positions(12, [4, 9])[None]
        with torch.autocast("cpu", torch.bfloat16):
            low = drafter(embeddings.bfloat16(), features.bfloat16(), where, masks)
        assert low.dtype == torch.bfloat16
        exact = drafter(embeddings, features, where, masks)
        assert (low.float() - exact).square().mean().sqrt() < 0.1 * exact.square().mean().sqrt()
        low.float().sum().backward()
        assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in drafter.parameters())


def test_activation_checkpointing_changes_no_gradient(slots, taps):
    gradients = []
    for checkpointed in (False, True):
        drafter = toy_drafter()
        drafter.activation_checkpointing = checkpointed
        run_blocks(drafter, slots, taps, ANCHORS).square().sum().backward()
        gradients.append([p.grad for p in drafter.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")  # slow, exact, fine here
def test_flex_attention_gives_the_same_drafter(slots, taps):
    drafter = toy_drafter(
        torch.float32,
        layer_types=("full_attention", "sliding_attention", "full_attention"),
        sliding_window=6,
    )
    with torch.no_grad():  # flex has no backward on CPU
        dense = run_blocks(drafter, slots.float(), taps.float(), ANCHORS)
        drafter.attention = "flex"
        flex = run_blocks(drafter, slots.float(), taps.float(), ANCHORS)
    torch.testing.assert_close(flex, dense, atol=1e-5, rtol=0)


def test_empty_masks_are_the_lone_block(slots, taps):
    drafter = toy_drafter()
    where = block_positions(CONTEXT, [CONTEXT])[None]
    explicit = drafter(slots[:1], taps[None], where, BlockMasks())
    assert torch.equal(explicit, drafter(slots[:1], taps[None], where, None))
