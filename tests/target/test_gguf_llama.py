"""A small Llama written to GGUF by llama.cpp's rules comes back as the same model."""

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from transformers import AutoModelForCausalLM, AutoTokenizer

from dflash_lightning.target.gguf_llama import convert_gguf_llama, hf_name, rope_halves
from tests.toy import VOCAB, toy_llama

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [*SPECIAL, *"abcdefghijklmnopqrstuvwxyz", *"0123456789", "ab", "abc", "Ġ", "Ċ", *"ABCDEFGHIJ"]
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def rope_pairs(weight, num_heads):
    """llama.cpp's own permutation of q and k, head by head and row by row."""
    half = weight.shape[0] // num_heads // 2
    heads = weight.reshape(num_heads, 2 * half, -1)
    return np.concatenate([head[[i // 2 + i % 2 * half for i in range(2 * half)]] for head in heads])


def write_gguf(model, path, *, architecture="llama", pre="smollm"):
    config = model.config
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges(["a b", "ab c"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, weight in model.state_dict().items():
        if not (name == "lm_head.weight" and config.tie_word_embeddings):
            writer.add_tensor(*_gguf_tensor(name, weight.numpy(), config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_tensor(name, weight, config):
    parts = name.removesuffix(".weight").split(".")
    layer = f"blk.{parts[2]}." if "layers" in parts else ""
    kind = GGUF_NAMES[".".join(parts[3:] if layer else parts)]
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    return f"{layer}{kind}.weight", rope_pairs(weight, heads[kind]) if kind in heads else weight


@pytest.mark.parametrize("tied", [True, False])
def test_a_llama_survives_gguf(tied, tmp_path):
    assert len(TOKENS) == VOCAB
    model = toy_llama(layers=2, tied=tied)
    convert_gguf_llama(write_gguf(model, tmp_path / "toy.gguf"), tmp_path, dtype=torch.float32)
    back = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert back.config.tie_word_embeddings is tied
    ids = torch.arange(40)[None]
    torch.testing.assert_close(back(ids).logits, model(ids).logits, rtol=0, atol=0)


def test_the_order_of_rotary_rows_matters():  # else the test above could not see it
    weight = np.arange(32, dtype=np.float32).reshape(16, 2)
    assert not np.array_equal(rope_pairs(weight, 2), weight)
    assert np.array_equal(rope_halves(rope_pairs(weight, 2), 2), weight)


def test_tokenizer_merges_letters_but_never_digits_and_keeps_the_template(tmp_path):
    convert_gguf_llama(write_gguf(toy_llama(layers=1), tmp_path / "toy.gguf"), tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.tokenize("abcab 12\n<|im_end|>") == ["abc", "ab", "Ġ", "1", "2", "Ċ", "<|im_end|>"]
    assert tokenizer.decode(tokenizer("abcab 12\n")["input_ids"]) == "abcab 12\n"
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == tuple(SPECIAL[1:] + SPECIAL[2:])
    chat = [{"role": "user", "content": "ab"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "<|im_start|>ab<|im_end|>"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"architecture": "qwen2"}, "holds a 'qwen2' model; only 'llama' is converted"),
        ({"pre": "llama-bpe"}, r"tokenizer \('gpt2', 'llama-bpe'\) of the GGUF file is not known"),
    ],
)
def test_other_files_are_refused(changed, message, tmp_path):
    source = write_gguf(toy_llama(layers=1), tmp_path / "toy.gguf", **changed)
    with pytest.raises(ValueError, match=message):
        convert_gguf_llama(source, tmp_path)


def test_an_unknown_tensor_is_named():
    with pytest.raises(ValueError, match=r"tensor 'blk.0.attn_gate.weight' .* no place in a plain Llama"):
        hf_name("blk.0.attn_gate.weight")
