import pytest

from dflash_lightning.drafter import tap_layers
from tests.drafter.toy import drafter_config

TAPS = {  # depth: taps for 1, 2, 3, 5 and 8 of them (spec/dflash.md 1.2.1)
    12: ([6], [1, 9], [1, 5, 9], [1, 3, 5, 7, 9], [1, 2, 3, 4, 6, 7, 8, 9]),
    16: ([8], [1, 13], [1, 7, 13], [1, 4, 7, 10, 13], [1, 3, 4, 6, 8, 10, 11, 13]),
    24: ([12], [1, 21], [1, 11, 21], [1, 6, 11, 16, 21], [1, 4, 7, 10, 12, 15, 18, 21]),
    28: ([14], [1, 25], [1, 13, 25], [1, 7, 13, 19, 25], [1, 4, 8, 11, 15, 18, 22, 25]),
    30: ([15], [1, 27], [1, 14, 27], [1, 8, 14, 20, 27], [1, 5, 8, 12, 16, 20, 23, 27]),
    32: ([16], [1, 29], [1, 15, 29], [1, 8, 15, 22, 29], [1, 5, 9, 13, 17, 21, 25, 29]),
    36: ([18], [1, 33], [1, 17, 33], [1, 9, 17, 25, 33], [1, 6, 10, 15, 19, 24, 28, 33]),
    40: ([20], [1, 37], [1, 19, 37], [1, 10, 19, 28, 37], [1, 6, 11, 16, 22, 27, 32, 37]),
    48: ([24], [1, 45], [1, 23, 45], [1, 12, 23, 34, 45], [1, 7, 14, 20, 26, 32, 39, 45]),
    52: ([26], [1, 49], [1, 25, 49], [1, 13, 25, 37, 49], [1, 8, 15, 22, 28, 35, 42, 49]),
    64: ([32], [1, 61], [1, 31, 61], [1, 16, 31, 46, 61], [1, 10, 18, 27, 35, 44, 52, 61]),
    80: ([40], [1, 77], [1, 39, 77], [1, 20, 39, 58, 77], [1, 12, 23, 34, 44, 55, 66, 77]),
}


@pytest.mark.parametrize(("depth", "rows"), TAPS.items())
def test_default_taps_are_those_of_the_released_checkpoints(depth, rows):
    for count, taps in zip((1, 2, 3, 5, 8), rows, strict=True):
        assert list(tap_layers(depth, count)) == taps


def test_ties_round_half_to_even():
    assert tap_layers(30, 5) == (1, 8, 14, 20, 27)  # 20.5 -> 20, half-up would give 21
    assert tap_layers(62, 5) == (1, 16, 30, 44, 59)  # 15.5 -> 16, 44.5 -> 44


@pytest.mark.parametrize(("depth", "count"), [(8, 8), (5, 5), (4, 2), (3, 2), (0, 1)])
def test_a_target_too_shallow_for_the_formula_is_refused(depth, count):
    with pytest.raises(ValueError, match=f"a target of {depth} layers has no {count} evenly spaced taps"):
        tap_layers(depth, count)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 3}, r"num_heads \(3\) must be a multiple of num_kv_heads \(2\)"),
        ({"head_dim": 15}, "head_dim must be even for rotary embedding, got 15"),
        ({"block_size": 1}, "must be at least 2, got 1"),
        ({"mask_token_id": 53}, r"mask_token_id 53 is not a row of the target's embedding table \(53 rows\)"),
        ({"mask_token_id": -1}, "mask_token_id -1 is not a row"),
        ({"rope_theta": 0.0}, "rope_theta must be positive, got 0.0"),
        ({"target_layer_ids": ()}, "target_layer_ids is empty"),
        ({"target_layer_ids": (1, 3, 3)}, r"must not repeat a layer, got \[1, 3, 3\]"),
        ({"target_layer_ids": (1, 8)}, r"must lie in 0..7 \(the target has 8 layers\)"),
        ({"target_layer_ids": (1, 7)}, r"taps the last layer \(7\).*set allow_last_layer_tap"),
        ({"layer_types": ("full_attention",)}, "layer_types must name every layer: got 1 for 3 layers"),
        ({"layer_types": ("full_attention", "local", "local")}, r"got \['local'\]"),
        ({"layer_types": ("sliding_attention",) * 3}, "need a positive sliding_window, got None"),
        ({"causal_in_block": "full"}, "causal_in_block must be false, true or sliding, got 'full'"),
    ],
)
def test_nonsense_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        drafter_config(**changes)


def test_the_last_layer_may_be_tapped_on_request_and_taps_may_come_in_any_order():
    assert drafter_config(target_layer_ids=(7, 1), allow_last_layer_tap=True).target_layer_ids == (7, 1)


def test_layer_types_default_to_full_attention():
    assert drafter_config().layer_types == ("full_attention",) * 3
    assert drafter_config().sees_all_context
    assert not drafter_config(causal_in_block=True).sees_all_context
