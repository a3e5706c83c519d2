"""Answers are taken out of a row and put back, the target's own."""

from datetime import datetime
from decimal import Decimal

import pytest

from dflash_lightning.data.conversations import RowError
from dflash_lightning.regenerate.chats import Answer, open_chat, require_writable
from tests.data.chats import row


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


def opened(given, *, turns="all", truncated="drop"):
    return open_chat(given, number=5, place="f:6", turns=turns, truncated=truncated)


def test_a_later_prompt_is_built_on_the_answers_of_the_target():
    chat = opened(row("a", "old 1", "b", "old 2"))
    assert chat.prompt == [user("a")]
    chat.take(Answer("new 1", tokens=3))
    assert chat.prompt == [user("a"), said("new 1"), user("b")]
    assert not chat.finished
    chat.take(Answer("new 2", tokens=4))
    record = chat.record()
    assert record.chat == {"messages": [user("a"), said("new 1"), user("b"), said("new 2")]}
    assert (record.status, record.answers, record.tokens, record.row) == ("ok", 2, 7, 5)


@pytest.mark.parametrize("turns", ["all", "last"])
@pytest.mark.parametrize(
    "given",
    [
        {"prompt": "a"},
        {"prompt": [user("a")]},
        {"turns": ["a", "b"]},  # the first is asked
        {"prompt": "a", "turns": ["c"]},
        {"prompt": "a", "messages": None, "conversations": []},  # Parquet fills in nulls
        {"prompt": "c", "messages": [user("a"), said("old")]},
    ],
)
def test_a_question_is_a_chat_of_one_turn(given, turns):
    """As `evaluate` reads it; the row's own columns stay, and the output is read as the chat it is."""
    chat = opened({"id": 3, **given}, turns=turns)
    assert chat.prompt == [user("a")]
    chat.take(Answer("new"))
    written = chat.record().chat
    assert written["messages"] == [user("a"), said("new")]
    own = {name: value for name, value in given.items() if name in ("prompt", "turns")}
    assert written == {"id": 3, **own, "messages": written["messages"]}
    assert opened(written, turns=turns).messages[0] == user("a")


def test_the_last_turn_alone_follows_the_answers_of_the_row():
    chat = opened(row("a", "old 1", "b", "old 2"), turns="last")
    assert chat.prompt == [user("a"), said("old 1"), user("b")]
    chat.take(Answer("new"))
    assert chat.record().chat["messages"][1::2] == [said("old 1"), said("new")]


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ({"messages": [user("a")]}, 1),  # prompts alone
        ({"messages": [user("a"), said("b"), user("c")]}, 2),  # one question more than answers
        ({"conversations": [{"from": "human", "value": "a"}]}, 1),
        ({"messages": [user("a"), said("b"), {"role": "system", "content": "s"}]}, 1),  # asks for nothing
    ],
)
def test_a_last_question_is_answered_too(given, prompts):
    assert len(opened(given).turns) == prompts


@pytest.mark.parametrize(
    "nulls", [("input_ids",), ("loss_mask",), ("input_ids", "loss_mask", "conversations")]
)
@pytest.mark.parametrize("texts", [("a",), ("a", "b", "c")])
def test_columns_without_a_value_change_nothing(nulls, texts):
    """Parquet fills in nulls where other rows of the file have a value."""
    given = row(*texts)
    chat = opened({**dict.fromkeys(nulls), **given})
    assert chat.turns == opened(given).turns
    while not chat.finished:
        chat.take(Answer("x"))
    assert chat.record().chat["messages"][-2:] == [user(texts[-1]), said("x")]


@pytest.mark.parametrize(
    ("more", "column"),
    [
        ({"image": b"\x89PNG"}, "image"),
        ({"image": bytearray(b"a")}, "image"),
        ({"id": 1, "images": [{"bytes": b"a", "path": None}]}, "images"),
        ({"pairs": [("key", b"a")]}, "pairs"),
        ({"messages": [{**user("a"), "images": [b"a"]}]}, "messages"),
    ],
)
def test_bytes_are_refused_by_the_name_of_their_column(more, column):
    chat = opened({"messages": [user("a")], **more})
    with pytest.raises(RowError, match=rf"a column holds bytes, which JSON cannot \({column}: leave it out"):
        require_writable(chat)


def test_every_other_column_can_be_written():
    values = {"n": 1, "x": 0.5, "when": datetime(2024, 1, 31, 12), "cost": Decimal("1.50"), "none": None}
    require_writable(opened({"messages": [user("a")], **values, "nested": {"list": [values, "text"]}}))


def test_the_output_is_a_row_that_can_be_read_again():
    given = {"system": "Be brief.", "id": 7, "conversations": [{"from": "human", "value": "a"}]}
    chat = opened(given)
    chat.take(Answer("b", reasoning="hm"))
    written = chat.record().chat
    assert written["id"] == 7
    assert "system" not in written  # it is a message now, and would be added once more
    assert written["messages"][2] == {"role": "assistant", "content": "b", "reasoning_content": "hm"}
    assert opened(written).messages[:2] == written["messages"][:2]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"input_ids": [1, 2], "loss_mask": [0, 1]}, "ready tokens hold no messages"),
        ({"text": "x"}, r"no messages, conversations, prompt or turns \(columns: text\)"),
        ({"turns": []}, "no messages, conversations, prompt or turns"),
        ({"prompt": None, "turns": None, "messages": None}, "no messages, conversations, prompt or turns"),
        ({"prompt": 7}, "no messages, conversations, prompt or turns"),
        ({"prompt": ""}, "a message without text"),
        ({"prompt": "a", "input_ids": [1, 2], "loss_mask": [0, 1]}, "ready tokens hold no messages"),
        ([1], "row is not an object"),
        ({"messages": []}, "the chat is empty"),
        ({"messages": [said("hello")]}, "the assistant speaks before the user"),
        ({"messages": [user("")]}, "a message without text"),
        ({"messages": [user("a"), said(""), {"role": "tool", "content": "4"}]}, "calls a tool"),
        ({"messages": [user("a"), {**said(""), "tool_calls": [{"id": "x"}]}]}, "calls a tool"),
    ],
)
def test_what_cannot_be_answered_says_why(given, reason):
    with pytest.raises(RowError, match=reason):
        opened(given)


def test_earlier_tool_calls_may_stay():
    call, result = {**said(""), "tool_calls": [{"id": "x"}]}, {"role": "tool", "content": "4"}
    chat = opened({"messages": [user("2+2"), call, result, said("old")]}, turns="last")
    assert chat.prompt == [user("2+2"), call, result]


@pytest.mark.parametrize(("truncated", "kept", "answers"), [("drop", False, 1), ("keep", True, 2)])
def test_an_answer_that_reached_the_limit_is_marked_and_by_default_not_learned_from(truncated, kept, answers):
    chat = opened(row("a", "", "b", ""), truncated=truncated)
    while not chat.finished:
        chat.take(Answer("half", truncated=True))
    record = chat.record()
    assert (record.status, record.chat is not None, record.answers) == ("truncated", kept, answers)


def test_a_chat_ends_with_an_empty_answer():
    chat = opened(row("a", "", "b", ""))
    chat.take(Answer(" \n"))
    assert chat.finished
    assert (chat.record().status, chat.record().chat) == ("skipped", None)
    assert chat.record().reason == "the target's answer is empty"


def test_no_record_before_the_end():
    with pytest.raises(ValueError, match="row 5 has 0 of 1 answers"):
        opened(row("a", "")).record()


def test_each_answer_has_its_own_seed_and_always_the_same():
    chat = opened(row("a", "", "b", ""))
    first = chat.seed(3)
    assert first == opened(row("other", "", "b", "")).seed(3)  # by row and turn, not by what was said
    assert first != opened(row("a", "")).seed(4)
    assert first != open_chat(row("a", ""), number=6, place="", turns="all").seed(3)
    chat.take(Answer("x"))
    assert first != chat.seed(3)
    assert 0 <= first < 2**31
