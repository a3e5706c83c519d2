import pytest
from transformers import LlamaConfig

from dflash_lightning.export.config_json import from_json_dict, to_json_dict
from dflash_lightning.target.geometry import drafter_config_for, rope_theta
from tests.toy import MASK, toy_config

CHOICES = {"num_layers": 3, "block_size": 4, "mask_token_id": MASK}


def test_a_drafter_takes_its_targets_shape():
    config = drafter_config_for(toy_config(), **CHOICES)
    assert (config.hidden_size, config.vocab_size, config.num_target_layers) == (64, 53, 8)
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.intermediate_size) == (
        4,
        2,
        16,
        48,
    )
    assert config.target_layer_ids == (1, 3, 5)  # one tap per drafter layer, spec 1.2.1
    assert config.layer_types == ("full_attention",) * 3
    assert (config.rope_theta, config.bos_token_id, config.eos_token_id) == (1e4, 0, 1)


def test_heads_widths_and_taps_can_be_chosen():
    config = drafter_config_for(
        toy_config(), **CHOICES, num_heads=8, num_kv_heads=4, head_dim=32, intermediate_size=96, num_taps=2
    )
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.intermediate_size) == (
        8,
        4,
        32,
        96,
    )
    assert config.target_layer_ids == (1, 5)
    assert drafter_config_for(toy_config(), **CHOICES, target_layer_ids=[5, 2]).target_layer_ids == (5, 2)


def test_contradicting_tap_choices_are_refused():
    with pytest.raises(ValueError, match="num_taps is 3 but target_layer_ids names 2 layers"):
        drafter_config_for(toy_config(), **CHOICES, target_layer_ids=[5, 2], num_taps=3)


class Version4:
    """A config as transformers 4 held it."""

    model_type = "llama"
    rope_theta = 5e5


def test_rope_base_is_read_from_either_place():
    scaled = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0}
    scaled |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    assert rope_theta(LlamaConfig(rope_parameters=scaled)) == 5e5  # the drafter's own rope is plain
    assert rope_theta(Version4()) == 5e5


def test_a_missing_rope_base_is_refused():
    config = LlamaConfig()
    config.rope_parameters = {"rope_type": "default"}
    with pytest.raises(ValueError, match="llama has neither rope_parameters.rope_theta nor rope_theta"):
        rope_theta(config)


def test_several_ends_of_text_export_as_the_first():
    config = toy_config()
    config.eos_token_id = [7, 8]
    assert drafter_config_for(config, **CHOICES).eos_token_id == 7


FULL, SLIDING = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    ("layer_types", "window"),
    [(None, None), ((FULL,) * 3, None), ((SLIDING, FULL, FULL), 16), ((SLIDING,) * 3, 16)],
)
def test_a_window_is_kept_where_a_layer_slides(layer_types, window):
    """Law: what an export says of the drafter is all of it, so reading it gives the same config."""
    config = drafter_config_for(toy_config(), **CHOICES, layer_types=layer_types, sliding_window=16)
    assert config.sliding_window == window
    assert from_json_dict(to_json_dict(config), source="config.json") == config
