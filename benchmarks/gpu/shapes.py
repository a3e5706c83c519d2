"""A target of the wanted shape with random weights, and a token store for it: no download."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from dflash_lightning.data.prepare import PrepareConfig, prepare


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What is trained. Defaults: a target like Qwen3-1.7B, a drafter of 5 layers, the paper's block."""

    hidden: int = 2048
    intermediate: int = 6144
    layers: int = 28
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    vocabulary: int = 151_936
    drafter_layers: int = 5
    block_size: int = 16
    num_anchors: int = 512
    length: int = 3072
    rows: int = 1
    steps: int = 24


TOY = Shape(
    hidden=64,
    intermediate=128,
    layers=6,
    heads=4,
    kv_heads=2,
    head_dim=16,
    vocabulary=512,
    drafter_layers=2,
    block_size=4,
    num_anchors=8,
    length=96,
    rows=2,
    steps=8,
)


def save_target(folder: Path, shape: Shape) -> Path:
    """Random weights in bf16; a tokenizer of as many words as the vocabulary has rows, but one."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.length,
        tie_word_embeddings=True,
        dtype="bfloat16",
        bos_token_id=1,
        eos_token_id=1,
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    words = Tokenizer(WordLevel({f"t{i}": i for i in range(shape.vocabulary - 1)}, unk_token="t0"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="t1").save_pretrained(folder)
    return folder


def save_store(folder: Path, target: Path, shape: Shape) -> Path:
    """Rows of random tokens, all of the full length, the last seven eighths supervised."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    prompt = shape.length // 8
    mask = [0] * prompt + [1] * (shape.length - prompt)
    with (folder / "rows.jsonl").open("w") as file:
        for _ in range(shape.rows * shape.steps):
            ids = rng.integers(2, shape.vocabulary - 1, shape.length).tolist()
            file.write(json.dumps({"input_ids": ids, "loss_mask": mask}) + "\n")
    config = PrepareConfig(
        input=(str(folder / "rows.jsonl"),), output=str(folder / "store"), validation_share=0.0, workers=1
    )
    prepare(config, PreTrainedTokenizerFast.from_pretrained(target))
    return folder / "store"
