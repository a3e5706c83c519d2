"""The fixture of spec/dflash.md section 6: a random Qwen3 target small enough for exact tests on a CPU."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

VOCAB = 53
HIDDEN = 64  # >= VOCAB, so that the head has a right inverse (the noisy oracle drafter needs one)
MASK = 52
LAYERS = 8


def toy_config(*, layers: int = LAYERS, vocab: int = VOCAB, tied: bool = False) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=vocab,
        hidden_size=HIDDEN,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        tie_word_embeddings=tied,
        bos_token_id=0,
        eos_token_id=1,
    )


def toy_model(
    *, layers: int = LAYERS, vocab: int = VOCAB, tied: bool = False, seed: int = 0
) -> PreTrainedModel:
    """A frozen Qwen3 with weights N(0, 0.25): its greedy text is varied, never a constant loop at once."""
    return _randomise(Qwen3ForCausalLM(toy_config(layers=layers, vocab=vocab, tied=tied)), seed)


def toy_llama(
    *, layers: int = LAYERS, vocab: int = VOCAB, tied: bool = True, seed: int = 0
) -> PreTrainedModel:
    """The same shape as a Llama with a tied head, the family of the embedded default target."""
    config = toy_config(layers=layers, vocab=vocab, tied=tied)
    return _randomise(
        LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocab,
                hidden_size=HIDDEN,
                intermediate_size=48,
                num_hidden_layers=layers,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=16,
                max_position_embeddings=512,
                rope_parameters=config.rope_parameters,
                tie_word_embeddings=tied,
                bos_token_id=0,
                eos_token_id=1,
            )
        ),
        seed,
    )


def _randomise(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.normal_(0.0, 0.25, generator=generator)
    model.tie_weights()
    return model.eval().requires_grad_(False)
