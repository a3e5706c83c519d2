import pytest
import torch
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
)

from dflash_lightning.target.layers import find_parts, require_croppable, text_config
from tests.toy import toy_llama, toy_model

SMALL = {
    "vocab_size": 31,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    "model",
    [
        toy_model(),
        toy_llama(),
        Qwen2ForCausalLM(Qwen2Config(**SMALL)),
        MistralForCausalLM(MistralConfig(**SMALL, head_dim=8)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_supported_families_have_all_parts(model):
    parts = find_parts(model)
    assert parts.body is model.model
    assert len(parts.layers) == model.config.num_hidden_layers
    assert parts.embed.weight is model.get_input_embeddings().weight
    assert parts.head is model.lm_head.weight


def test_a_tied_head_is_the_embedding_itself():
    tied, untied = find_parts(toy_llama(tied=True)), find_parts(toy_model(tied=False))
    assert tied.head is tied.embed.weight
    assert not torch.equal(untied.head, untied.embed.weight)


def without(part):
    model = toy_llama()
    delattr(model.model, part)
    return model


class ScaledEmbedding(nn.Embedding):
    """As Gemma's: the drafter would be trained on rows that engines do not scale."""


def scaled():
    model = toy_llama(tied=False)
    model.model.embed_tokens = ScaledEmbedding(53, 64)
    return model


def biased():
    model = toy_llama(tied=False)
    model.lm_head = nn.Linear(64, 53)
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=11)),
            "has no decoder at `model`",
        ),
        (without("layers"), "has no `model.layers`; targets must be built like Llama"),
        (without("norm"), "has no `model.norm`"),
        (without("embed_tokens"), "has no `model.embed_tokens`"),
        (scaled(), "embeds tokens with ScaledEmbedding, not a plain table"),
        (biased(), "has a bias in its output head"),
        (nn.Linear(2, 2), "Linear has no decoder at `model`"),
    ],
)
def test_another_anatomy_is_refused_by_the_missing_part(model, message):
    with pytest.raises(ValueError, match=message):
        find_parts(model)


def test_recurrent_layers_are_refused_for_decoding():
    config = Qwen3Config(**SMALL)
    require_croppable(config)
    config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(ValueError, match="layers of kind linear_attention; .* take back rejected tokens"):
        require_croppable(config)


def test_a_nested_text_config_is_resolved():
    config = Qwen3Config(**SMALL)
    assert text_config(config) is config
