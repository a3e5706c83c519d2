"""The prompts of the demo: templates x topics of our own, cut into a training and a held-out part by topic.

In: prompts.json (kinds of request: name, topic list, answer limit, templates; the topics and the category of
each list).
Out: `Prompt` rows, always the same ones in the same order.
Law: no topic, passage, person or place of a held-out prompt occurs in a training prompt.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Split = Literal["train", "heldout"]
SOURCE = json.loads((Path(__file__).parent / "prompts.json").read_text())
TOPICS = SOURCE["topics"]
HELDOUT_PROMPTS = 48


@dataclass(frozen=True, kw_only=True)
class Prompt:
    id: str
    topic: str
    category: str
    """What kind of answer is asked for; `evaluate` shows acceptance by it."""
    turns: tuple[str, ...]
    """What the user says, one entry a turn; the target answers each in turn."""
    max_new_tokens: int
    """Limit of each answer: part of the spread of lengths."""


def make_prompts(split: Split, *, seed: int = 0) -> list[Prompt]:
    """All training prompts, shuffled, a third of them with follow-ups; or the single-turn held-out ones."""
    rng = random.Random(f"{seed}/{split}")  # a string seed is hashed the same way in every process
    prompts = [*_topic_prompts(split, rng), *_passage_prompts(split, rng)]
    rng.shuffle(prompts)
    return prompts if split == "train" else prompts[:HELDOUT_PROMPTS]


def _topic_prompts(split: Split, rng: random.Random) -> Iterator[Prompt]:
    """Each topic gets one template of every kind of its list."""
    for kind, list_name, limit, templates in SOURCE["kinds"]:
        for topic in TOPICS[list_name][split]:
            words = _pair(topic) if list_name == "pair" else topic
            first = rng.choice(templates).format(x=words)
            extra = SOURCE["follow_ups"]["code" if list_name == "code" else "other"]
            yield Prompt(
                id=f"{kind}/{topic}",
                topic=topic,
                category=SOURCE["categories"][list_name],
                turns=(first, *_follow_ups(split, extra, rng)),
                max_new_tokens=limit,
            )


def _passage_prompts(split: Split, rng: random.Random) -> Iterator[Prompt]:
    for event in TOPICS["event"][split]:
        for number, passage in enumerate(TOPICS["passage"][split]):
            names = {key: rng.choice(TOPICS[key][split]) for key in ("person", "place")}
            task, limit = rng.choice(SOURCE["passage_tasks"])
            yield Prompt(
                id=f"passage{number}/{event}",
                topic=event,
                category=SOURCE["categories"]["passage"],
                turns=(f"{task}\n\n{passage.format(event=event, **names)}",),
                max_new_tokens=limit,
            )


def _follow_ups(split: Split, choices: list[str], rng: random.Random) -> list[str]:
    count = rng.choices([0, 1, 2], weights=[66, 22, 12])[0] if split == "train" else 0
    return rng.sample(choices, count)


def _pair(topic: str) -> str:
    first, second = topic.split(" | ")
    return f"{first} and {second}"
