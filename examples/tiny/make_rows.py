"""The tiny target's own continuations of the sources it was trained on: rows.jsonl and heldout.jsonl.

    python examples/tiny/make_rows.py

rows.jsonl     {"input_ids", "loss_mask"}: bos, a piece of a training file (mask 0), what the target goes on
               with, greedily (mask 1); lengths are spread evenly on a log scale, over several buckets
heldout.jsonl  {"messages", "topic"}: prompts from files that the target never saw
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import torch
from byte_tokenizer import byte_tokenizer
from sources import read_sources
from transformers import AutoModelForCausalLM, PreTrainedModel

HERE = Path(__file__).parent
NUM_ROWS = 1200
NUM_HELDOUT = 48
PROMPT_BYTES = (32, 64, 96)
LENGTHS = (80, 512)  # tokens of a whole row
MAX_REPEATED = (
    0.7  # of a row's 8-grams; above it the row is little but a loop, mostly of blanks, and left out
)


def main() -> None:
    torch.set_num_threads(1)
    rng = random.Random(0)
    model = AutoModelForCausalLM.from_pretrained(HERE / "target", dtype=torch.float32).eval()
    with (HERE / "rows.jsonl").open("w") as file:
        for row in make_rows(model, read_sources("train"), rng):
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
    with (HERE / "heldout.jsonl").open("w") as file:
        for name, prompt in draw_prompts(read_sources("heldout"), 64, NUM_HELDOUT, rng):
            file.write(json.dumps({"messages": [{"role": "user", "content": prompt}], "topic": name}) + "\n")


def make_rows(
    model: PreTrainedModel, sources: dict[str, str], rng: random.Random
) -> Iterator[dict[str, list[int]]]:
    """Batches of prompts of one size, each continued to the longest length and then cut row by row."""
    tokenizer = byte_tokenizer()
    shortest, longest = LENGTHS
    for batch in range(NUM_ROWS // 50):
        prompts = draw_prompts(sources, PROMPT_BYTES[batch % len(PROMPT_BYTES)], 50, rng)
        texts = [tokenizer.bos_token + prompt for _, prompt in prompts]
        ids = tokenizer(texts, return_tensors="pt", return_token_type_ids=False)
        rows = model.generate(**ids, do_sample=False, max_length=longest)
        num_prompt = ids["input_ids"].shape[1]
        for row in rows.tolist():
            length = max(num_prompt + 16, round(shortest * (longest / shortest) ** rng.random()))
            kept = [token for token in row[:length] if token != tokenizer.pad_token_id]
            if repeated_share(kept) > MAX_REPEATED:
                continue
            yield {"input_ids": kept, "loss_mask": [0] * num_prompt + [1] * (len(kept) - num_prompt)}
        print(f"{50 * (batch + 1)} of {NUM_ROWS} continued", flush=True)


def repeated_share(ids: list[int]) -> float:
    grams = [tuple(ids[i : i + 8]) for i in range(len(ids) - 7)]
    return 1 - len(set(grams)) / len(grams)


def draw_prompts(
    sources: dict[str, str], num_bytes: int, count: int, rng: random.Random
) -> list[tuple[str, str]]:
    """(file, text): pieces of `num_bytes` that begin with a line of code or prose."""
    names = rng.choices(sorted(sources), k=count)
    prompts = []
    for name in names:
        text = sources[name]
        starts = [i + 1 for i in range(len(text) - num_bytes) if text[i] == "\n" and text[i + 1].strip()]
        start = rng.choice(starts)
        prompts.append((name, text[start : start + num_bytes]))
    return prompts


if __name__ == "__main__":
    main()
