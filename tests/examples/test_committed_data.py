"""What the committed examples promise in their READMEs."""

import json
from pathlib import Path

import pytest
from transformers import AutoConfig, AutoTokenizer

EXAMPLES = Path(__file__).parents[2] / "examples"


def read_rows(name):
    return [json.loads(line) for line in (EXAMPLES / name).read_text().splitlines()]


def test_demo_chats_alternate_and_hold_several_turns():
    chats = read_rows("demo/chats.jsonl")
    for chat in chats:
        roles = [message["role"] for message in chat["messages"]]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        assert all(message["content"].strip() for message in chat["messages"])
    assert {len(chat["messages"]) // 2 for chat in chats} == {1, 2, 3}


@pytest.mark.parametrize("folder", ["demo", "tiny"])
def test_heldout_prompts_are_one_user_turn(folder):
    for row in read_rows(f"{folder}/heldout.jsonl"):
        assert [message["role"] for message in row["messages"]] == ["user"]


def test_demo_prompts_say_what_kind_of_answer_they_ask_for():
    named = set(json.loads((EXAMPLES / "demo/prompts.json").read_text())["categories"].values())
    assert {row["category"] for row in read_rows("demo/heldout.jsonl")} == named


def test_heldout_topics_are_new():
    trained = {row["topic"] for row in read_rows("demo/chats.jsonl")}
    heldout = {row["topic"] for row in read_rows("demo/heldout.jsonl")}
    assert trained
    assert not trained & heldout


def test_no_held_out_name_is_in_a_training_prompt():
    topics = json.loads((EXAMPLES / "demo/prompts.json").read_text())["topics"]
    asked = [row["messages"][0]["content"] for row in read_rows("demo/chats.jsonl")]
    for kind in ("person", "place", "event"):
        assert not [name for name in topics[kind]["heldout"] if any(name in text for text in asked)]


def test_tiny_rows_are_a_masked_prompt_and_a_supervised_continuation():
    rows = read_rows("tiny/rows.jsonl")
    vocabulary = AutoConfig.from_pretrained(EXAMPLES / "tiny/target").vocab_size
    for row in rows:
        ids, mask = row["input_ids"], row["loss_mask"]
        assert len(ids) == len(mask) <= 512
        assert mask == sorted(mask)
        assert 0 < sum(mask) < len(mask)
        assert 0 <= min(ids) <= max(ids) < vocabulary
    lengths = [len(row["input_ids"]) for row in rows]
    assert all(any(low < length <= 2 * low for length in lengths) for low in (64, 128, 256))


def test_tiny_tokenizer_is_bytes():
    tokenizer = AutoTokenizer.from_pretrained(EXAMPLES / "tiny/target")
    text = 'def f(x):\n\treturn "é" + x\x00'
    assert tokenizer(text)["input_ids"] == list(text.encode())
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer) == AutoConfig.from_pretrained(EXAMPLES / "tiny/target").vocab_size
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "<|bos|>ab<|eos|>"
    assert tokenizer.mask_token_id == 259


@pytest.mark.parametrize(
    ("folder", "limit"), [("tiny/target", 2_000_000), ("tiny", 4_000_000), ("demo", 3_500_000)]
)
def test_committed_examples_stay_small(folder, limit):
    files = [path for path in (EXAMPLES / folder).rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert 0 < sum(path.stat().st_size for path in files) < limit
