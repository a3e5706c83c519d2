"""A Llama in a GGUF file -> a plain Hugging Face folder (weights, config, tokenizer, chat template).

In: the file. Out: a folder that `AutoModelForCausalLM` and `AutoTokenizer` load offline.
Law: no weight changes except by dequantising and rounding to `dtype`; a tied head is stored once.
Needs neither accelerate nor the GGUF route of Transformers (which keeps the tensors quantised on save).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, PreTrainedTokenizerFast

FloatArray = npt.NDArray[np.float32]

_CONTROL_TOKEN = 3  # gguf's token type of special tokens
_GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert_gguf_llama(source: Path, folder: Path, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write the Hugging Face folder of a GGUF Llama with a byte-level BPE tokenizer into `folder`.

    Raises ValueError for another architecture, tokenizer or tensor name than the ones read here.
    """
    reader = GGUFReader(source)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    if (family := facts["general.architecture"]) != "llama":
        raise ValueError(f"{source} holds a {family!r} model; only 'llama' is converted here")
    weights = read_weights(reader, facts, dtype)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = llama_config(facts, dtype=dtype, tied="lm_head.weight" not in weights)
    config.save_pretrained(folder)
    build_tokenizer(facts).save_pretrained(folder)


def read_weights(reader: GGUFReader, facts: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Tensor]:
    """Every tensor of the file, dequantised, under its Hugging Face name."""
    heads = {
        "attn_q": facts["llama.attention.head_count"],
        "attn_k": facts["llama.attention.head_count_kv"],
    }
    weights = {}
    for tensor in reader.tensors:
        array = dequantize(tensor.data, tensor.tensor_type)
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            array = rope_halves(array, heads[kind])
        weights[hf_name(tensor.name)] = torch.from_numpy(np.array(array)).to(
            dtype
        )  # a copy: the file is mapped read-only
    return weights


def rope_halves(weight: FloatArray, num_heads: int) -> FloatArray:
    """Undo GGUF's row order of q and k: rotary pairs (2i, 2i+1) there, (i, i + d/2) in Hugging Face."""
    rows, columns = weight.shape
    pairs = weight.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def hf_name(name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    if name in _GLOBAL_NAMES:
        return _GLOBAL_NAMES[name]
    match name.split("."):
        case ["blk", layer, kind, "weight"] if kind in _LAYER_NAMES:
            return f"model.layers.{layer}.{_LAYER_NAMES[kind]}.weight"
    raise ValueError(f"tensor {name!r} of the GGUF file has no place in a plain Llama")


def llama_config(facts: Mapping[str, Any], *, dtype: torch.dtype, tied: bool) -> LlamaConfig:
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        dtype=dtype,
        vocab_size=len(facts["tokenizer.ggml.tokens"]),
        hidden_size=facts["llama.embedding_length"],
        intermediate_size=facts["llama.feed_forward_length"],
        num_hidden_layers=facts["llama.block_count"],
        num_attention_heads=facts["llama.attention.head_count"],
        num_key_value_heads=facts["llama.attention.head_count_kv"],
        head_dim=facts["llama.rope.dimension_count"],
        max_position_embeddings=facts["llama.context_length"],
        rms_norm_eps=round(facts["llama.attention.layer_norm_rms_epsilon"], 12),  # stored in float32
        rope_parameters={"rope_type": "default", "rope_theta": facts["llama.rope.freq_base"]},
        tie_word_embeddings=tied,
        bos_token_id=facts["tokenizer.ggml.bos_token_id"],
        eos_token_id=facts["tokenizer.ggml.eos_token_id"],
        pad_token_id=facts["tokenizer.ggml.padding_token_id"],
    )


def build_tokenizer(facts: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    """Byte-level BPE whose digits are single tokens, as the `smollm` pre-tokenizer of llama.cpp cuts them."""
    kinds = facts["tokenizer.ggml.model"], facts["tokenizer.ggml.pre"]
    if kinds != ("gpt2", "smollm"):
        raise ValueError(f"tokenizer {kinds} of the GGUF file is not known here, only ('gpt2', 'smollm')")
    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    backend = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    types = facts["tokenizer.ggml.token_type"]
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL_TOKEN]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=tokens[facts["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[facts["tokenizer.ggml.eos_token_id"]],
        unk_token=tokens[facts["tokenizer.ggml.unknown_token_id"]],
        pad_token=tokens[facts["tokenizer.ggml.padding_token_id"]],
        chat_template=facts["tokenizer.chat_template"],
        model_max_length=facts["llama.context_length"],
        clean_up_tokenization_spaces=False,
    )
