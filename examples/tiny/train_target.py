"""Train the tiny target: a byte-level Qwen3 of 0.8 M parameters on the Python standard library's sources.

    python examples/tiny/train_target.py

About four minutes on one CPU core, always the same 1,000 steps. Writes a Hugging Face folder of under 2 MB
beside this file: target/ (bf16 weights, config, tokenizer with a chat template).
"""

import argparse
import math
import time
from pathlib import Path

import torch
from byte_tokenizer import VOCAB_SIZE, byte_tokenizer
from sources import read_sources
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

HERE = Path(__file__).parent
WIDTH = 512  # tokens of a row, the first one bos
ROWS = 8
PEAK_RATE = 4e-3
BOS, EOS, PAD = 256, 257, 258  # byte_tokenizer.SPECIAL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=HERE / "target")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the same weights on every machine of one kind
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(target_config())
    train(model, load_bytes("train"), args.steps)
    print(f"held-out files: {heldout_bits(model):.2f} bits per byte")
    model.to(torch.bfloat16).save_pretrained(args.out)
    byte_tokenizer().save_pretrained(args.out)


def target_config() -> Qwen3Config:
    return Qwen3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=WIDTH,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )


def load_bytes(split: str) -> Tensor:
    """All files of the split one after another, each ended by eos."""
    texts = read_sources(split).values()
    return torch.tensor([token for text in texts for token in (*text.encode(), EOS)], dtype=torch.int16)


def train(model: PreTrainedModel, text: Tensor, steps: int) -> None:
    """AdamW, warm-up over 50 steps, then cosine to zero; prints the loss once in 50 steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 50, 0.5 + 0.5 * math.cos(math.pi * step / steps))
    )
    start = time.process_time()
    for step in range(steps):
        loss = next_byte_loss(model, draw_rows(text, torch.Generator().manual_seed(step)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step}  loss {loss.item():.3f}  {time.process_time() - start:.0f} cpu-s", flush=True)


def draw_rows(text: Tensor, generator: torch.Generator) -> Tensor:
    """[ROWS, WIDTH]: bos and a stretch of the text from anywhere."""
    starts = torch.randint(len(text) - WIDTH, (ROWS, 1), generator=generator)
    rows = text[starts + torch.arange(WIDTH)].long()
    rows[:, 0] = BOS
    return rows


def next_byte_loss(model: PreTrainedModel, rows: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def heldout_bits(model: PreTrainedModel) -> float:
    text = load_bytes("heldout")
    losses = [next_byte_loss(model, draw_rows(text, torch.Generator().manual_seed(i))) for i in range(16)]
    return torch.stack(losses).mean().item() / math.log(2)


if __name__ == "__main__":
    main()
