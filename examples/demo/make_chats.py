"""Let the embedded target answer the demo's prompts: prompts.py -> chats.jsonl and heldout.jsonl.

    python examples/demo/make_chats.py --shard 0 2 &  python examples/demo/make_chats.py --shard 1 2

Greedy, in bf16, in batches of prompts of like length. Every answer is appended to a log in the work folder at
once, so a stopped job goes on where it was; each run ends by building both files from all logs. An answer
that falls into a loop, or that the limit cuts, is kept up to the last whole sentence before that.
"""

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from prompts import Prompt, make_prompts
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel

from dflash_lightning.target.embedded import EMBEDDED, resolve_target

HERE = Path(__file__).parent
MAX_REPEATED = 0.3
"""An answer loops when more than this share of its 4-grams occurred in it before."""


class Answer(NamedTuple):
    id: str
    turn: int
    text: str  # as generated
    num_tokens: int
    ended: bool  # by the target itself, not by the limit


Answers = dict[tuple[str, int], Answer]  # by prompt id and turn


class Job(NamedTuple):
    prompt: Prompt
    turn: int
    ids: list[int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="stop after the batch that passes this")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument(
        "--shard", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="every N-th prompt"
    )
    parser.add_argument("--work", type=Path, default=Path("runs/make_chats"), help="the logs go here")
    args = parser.parse_args()
    torch.set_num_threads(1)  # two shards at one thread each are faster than one at two
    args.work.mkdir(parents=True, exist_ok=True)
    first, num_shards = args.shard
    prompts = make_prompts("train")
    answer_all(
        prompts[first::num_shards], args.work / f"answers-{first}.jsonl", args.batch, args.minutes * 60
    )
    answers = read_answers(args.work)
    chats, facts = build_chats(prompts, answers)
    write_jsonl(HERE / "chats.jsonl", chats)
    heldout = make_prompts("heldout")
    write_jsonl(HERE / "heldout.jsonl", [heldout_row(prompt) for prompt in heldout])
    print(f"{len(chats)} chats, {len(heldout)} held-out prompts; {dict(facts)}")


def heldout_row(prompt: Prompt) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt.turns[0]}]
    return {"messages": messages, "topic": prompt.topic, "category": prompt.category}


def answer_all(prompts: Sequence[Prompt], log: Path, batch_size: int, seconds: float) -> None:
    """Answer every turn of every prompt, part by part, until the time is over."""
    folder = resolve_target(EMBEDDED)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    answers = read_answers(log.parent)
    start, tokens = time.monotonic(), 0
    for batch in open_batches(prompts, answers, tokenizer, batch_size):
        for job, ids in zip(batch, generate(model, batch), strict=True):
            ended = ids[-1] == tokenizer.eos_token_id
            text = tokenizer.decode(ids, skip_special_tokens=True).strip()
            answer = Answer(job.prompt.id, job.turn, text, len(ids), ended)
            answers[answer.id, answer.turn] = answer
            with log.open("a") as file:
                file.write(json.dumps(answer._asdict()) + "\n")
            tokens += len(ids)
        spent = time.monotonic() - start
        print(f"{len(answers)} answers, {tokens} tokens, {tokens / spent:.0f} tokens/s", flush=True)
        if spent > seconds:
            break


def open_batches(
    prompts: Sequence[Prompt], answers: Answers, tokenizer: Any, size: int
) -> Iterator[list[Job]]:
    """What is still to answer, in batches of like answer limit and prompt length: little padding.

    Part by part, each with all its turns, so that a stopped job still holds every kind of conversation.
    """
    for i in range(0, len(prompts), 6 * size):
        part = prompts[i : i + 6 * size]
        for turn in range(max(len(prompt.turns) for prompt in part)):
            jobs = open_jobs(part, answers, turn, tokenizer)
            jobs.sort(key=lambda job: (job.prompt.max_new_tokens, len(job.ids)))
            for j in range(0, len(jobs), size):
                yield jobs[j : j + size]


def read_answers(work: Path) -> Answers:
    """What all shards have answered so far."""
    lines = (line for log in sorted(work.glob("answers-*.jsonl")) for line in log.read_text().splitlines())
    found = [Answer(**json.loads(line)) for line in lines]
    return {(answer.id, answer.turn): answer for answer in found}


def open_jobs(prompts: Sequence[Prompt], answers: Answers, turn: int, tokenizer: Any) -> list[Job]:
    """Conversations whose earlier turns have good answers and whose turn `turn` has none yet."""
    jobs = []
    for prompt in prompts:
        messages = conversation(prompt, answers)
        if turn < len(prompt.turns) and len(messages) == 2 * turn and (prompt.id, turn) not in answers:
            messages.append({"role": "user", "content": prompt.turns[turn]})
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            jobs.append(Job(prompt, turn, ids))
    return jobs


@torch.inference_mode()
def generate(model: PreTrainedModel, jobs: Sequence[Job]) -> list[list[int]]:
    """Greedy answers, the end token included where the target wrote it. Rows leave when they end."""
    width = max(len(job.ids) for job in jobs)
    ids = torch.tensor([[0] * (width - len(job.ids)) + job.ids for job in jobs])
    mask = torch.tensor([[0] * (width - len(job.ids)) + [1] * len(job.ids) for job in jobs])
    cache = DynamicCache(config=model.config)
    answers: list[list[int]] = [[] for _ in jobs]
    rows = list(range(len(jobs)))  # jobs that still run, in the order of the batch
    while rows:
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        output = model(
            ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
        )
        tokens = output.logits[:, -1].argmax(-1)
        for row, token in zip(rows, tokens.tolist(), strict=True):
            answers[row].append(token)
        stay = [i for i, row in enumerate(rows) if not is_over(answers[row], jobs[row], model)]
        if len(stay) < len(rows):
            cache.batch_select_indices(torch.tensor(stay, dtype=torch.long))
            rows, mask, tokens = [rows[i] for i in stay], mask[stay], tokens[stay]
        ids = tokens[:, None]
        mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
    return answers


def is_over(ids: Sequence[int], job: Job, model: PreTrainedModel) -> bool:
    if ids[-1] == model.config.eos_token_id or len(ids) >= job.prompt.max_new_tokens:
        return True
    return len(ids) % 16 == 0 and repeated_share(ids) > MAX_REPEATED  # the rest would be cut off anyway


def conversation(prompt: Prompt, answers: Answers) -> list[dict[str, str]]:
    """User and assistant turns up to the first answer that is missing or unusable."""
    messages: list[dict[str, str]] = []
    for turn, question in enumerate(prompt.turns):
        answer = answers.get((prompt.id, turn))
        if answer is None or (text := usable_text(answer)) is None:
            break
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": text}]
    return messages


def usable_text(answer: Answer) -> str | None:
    """The answer; one that is cut or loops only up to a whole sentence or line before that. None: no such."""
    if answer.ended and is_sound(answer.text, MAX_REPEATED):
        return answer.text
    ends = re.finditer(r"(?<!\d)[.!?][\"')*]*(?=\s|$)|[^:\s](?=\n)|```(?=\s|$)", answer.text)
    parts = [answer.text[: match.end()] for match in ends]
    return next((part for part in reversed(parts) if is_sound(part, MAX_REPEATED / 3)), None)


def is_sound(text: str, max_repeated: float) -> bool:
    return text.count("```") % 2 == 0 and repeated_share(text.split()) <= max_repeated


def repeated_share(words: Sequence[Any]) -> float:
    """The share of 4-grams that occurred before: near 1 for a loop."""
    grams = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def build_chats(prompts: Sequence[Prompt], answers: Answers) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Rows of chats.jsonl, and how many answers are whole, shortened or left out."""
    chats, facts = [], Counter[str]()
    for prompt in prompts:
        messages = conversation(prompt, answers)
        if messages:
            chats.append({"messages": messages, "topic": prompt.topic})
    for answer in answers.values():
        text = usable_text(answer)
        kind = "no whole sentence" if text is None else "whole" if text == answer.text else "shortened"
        facts[kind] += 1
        facts["repeated itself"] += repeated_share(answer.text.split()) > MAX_REPEATED
    return chats, facts


def write_jsonl(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


if __name__ == "__main__":
    main()
