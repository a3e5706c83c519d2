"""Frozen, complete, and with a head that alone gives the logits: field.md section 3, case 3."""

import pytest
import torch
from torch import nn
from transformers import DynamicCache, LlamaForCausalLM

from dflash_lightning.target.model import Target
from tests.toy import HIDDEN, LAYERS, VOCAB, toy_config, toy_llama, toy_model


def test_a_target_is_frozen_in_eval_mode_and_invisible_to_an_owning_module():
    model = toy_model().train().requires_grad_(True)
    owner = nn.Module()
    owner.target = Target(model)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert list(owner.parameters()) == []
    assert owner.state_dict() == {}


def test_sizes_are_the_models():
    target = Target(toy_model(layers=LAYERS))
    assert (target.depth, target.hidden_size, target.vocab_size) == (LAYERS, HIDDEN, VOCAB)
    assert (target.dtype, target.device.type) == (torch.float32, "cpu")


@pytest.mark.parametrize("tied", [True, False])
def test_embedding_and_head_are_the_models_own(tied):
    model = toy_llama(tied=tied)
    target = Target(model)
    ids = torch.tensor([[3, 52], [0, 3]])
    assert torch.equal(target.embed(ids), model.model.embed_tokens.weight[ids])
    assert not target.embed(ids).requires_grad
    assert (target.head is model.model.embed_tokens.weight) == tied


def test_a_model_on_the_meta_device_is_refused():
    with torch.device("meta"):
        model = LlamaForCausalLM(toy_llama().config)
    with pytest.raises(
        ValueError, match="weights that were never loaded .on the meta device., first model.embed"
    ):
        Target(model)


def test_weights_that_are_not_numbers_are_refused():
    model = toy_model()
    model.model.layers[3].mlp.down_proj.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="computes logits that are not finite; were its weights loaded"):
        Target(model)


class SoftCapped(LlamaForCausalLM):
    """A head with something behind it, as Gemma 2 has."""

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.logits = 3.0 * torch.tanh(output.logits / 3.0)
        return output


def test_a_head_that_does_more_than_a_matrix_product_is_refused():
    with pytest.raises(ValueError, match="SoftCapped does more to its logits than the head's matrix product"):
        Target(
            SoftCapped(toy_llama().config).apply(lambda m: hasattr(m, "weight") and m.weight.data.mul_(20))
        )


def test_bfloat16_models_pass_the_head_check():
    assert Target(toy_model().bfloat16()).dtype == torch.bfloat16


def test_extending_a_cache_equals_one_pass():
    target, cache = Target(toy_model()), DynamicCache()
    ids = torch.arange(11)[None]
    whole = target.tapped_states(ids, [1, 5], final=True)
    parts = [target.extend(part, [1, 5], cache=cache) for part in ids.split([6, 1, 4], dim=1)]
    assert cache.get_seq_length() == 11
    torch.testing.assert_close(torch.cat([part.taps for part in parts], 1), whole.taps, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(
        torch.cat([part.final for part in parts], 1), whole.final, rtol=1e-3, atol=1e-4
    )


def test_the_toy_config_is_qwen3():
    assert Target(toy_model()).config.model_type == toy_config().model_type == "qwen3"
