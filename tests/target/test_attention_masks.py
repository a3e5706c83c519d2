"""A mask of one's own that says what the model would do anyway changes nothing, window or not."""

import pytest
import torch
from transformers import DynamicCache, MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

from dflash_lightning.target.attention_masks import additive, layer_kinds, model_masks
from dflash_lightning.target.model import Target
from tests.toy import toy_llama, toy_model

SMALL = {
    "vocab_size": 53,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
MIXED = ["full_attention", "sliding_attention", "sliding_attention"]


def mixed_qwen():
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            **SMALL, num_hidden_layers=3, layer_types=MIXED, sliding_window=4, use_sliding_window=True
        )
    )


def mistral():
    torch.manual_seed(0)
    return MistralForCausalLM(MistralConfig(**SMALL, num_hidden_layers=2, sliding_window=4))


def loud(model):
    """Weights large enough for attention to matter."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(12.0)
    return model


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        (toy_model, ["full_attention"]),
        (toy_llama, ["full_attention"]),
        (lambda: loud(mistral()), ["sliding_attention"]),
        (lambda: loud(mixed_qwen()), ["full_attention", "sliding_attention"]),
    ],
)
def test_the_causal_mask_spelled_out_is_the_models_own(model, kinds, kernel):
    target = Target(model())
    target.config._attn_implementation = kernel
    assert layer_kinds(target.config) == kinds
    ids, prompt = torch.randint(53, (1, 15), generator=torch.Generator().manual_seed(1)), 9
    whole = target.tapped_states(ids, (), final=True).final
    places = torch.arange(15)[None]
    visible = places[:, prompt:, None] >= places[:, None, :]

    def masked(visible):
        cache = DynamicCache()
        target.extend(ids[:, :prompt], (), cache=cache)
        mask = model_masks(target.config, visible, places[:, prompt:], places, dtype=target.dtype)
        return target.extend(ids[:, prompt:], (), cache=cache, positions=places[:, prompt:], mask=mask).final

    torch.testing.assert_close(masked(visible), whole[:, prompt:], rtol=1e-3, atol=1e-3)
    blind = visible.clone()
    blind[:, 0, prompt - 1] = False
    assert (masked(visible) - masked(blind)).abs().max() > 0.01  # the tolerance above could have told


def test_hidden_keys_get_the_least_number_and_never_infinity():
    mask = additive(torch.tensor([[[True, False]]]), torch.bfloat16)
    assert mask.shape == (1, 1, 1, 2)
    assert mask.flatten().tolist() == [0.0, torch.finfo(torch.bfloat16).min]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"_attn_implementation": "flash_attention_2"}, "kernel is flash_attention_2, which takes no mask"),
        ({"layer_types": ["chunked_attention"]}, "layers of kind chunked_attention"),
    ],
)
def test_kernels_and_layers_that_take_no_mask_are_refused(change, message):
    config = Target(toy_model()).config
    for name, value in change.items():
        setattr(config, name, value)
    places = torch.zeros(1, 1, dtype=torch.long)
    with pytest.raises(ValueError, match=message):
        model_masks(config, torch.ones(1, 1, 1, dtype=torch.bool), places, places, dtype=torch.float32)
