import pickle

import pytest

from dflash_lightning.data.conversations import Chat, ReadyTokens, RowError, parse_row

ASKED = {"role": "user", "content": "Hello"}
ANSWERED = {"role": "assistant", "content": "Hi"}
TEXT_PARTS = [{"type": "text", "text": "He"}, {"type": "text", "text": "llo"}]


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        ({"messages": [ASKED, ANSWERED]}, [ASKED, ANSWERED]),
        (
            {"conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi"}]},
            [ASKED, ANSWERED],
        ),
        ({"conversations": [ASKED, ANSWERED]}, [ASKED, ANSWERED]),  # OpenAI keys under ShareGPT's name
        (
            {"conversations": [ASKED, ANSWERED], "system": "Be"},
            [{"role": "system", "content": "Be"}, ASKED, ANSWERED],
        ),
        ({"messages": [{"role": "user", "content": TEXT_PARTS}, ANSWERED]}, [ASKED, ANSWERED]),
        (
            {"messages": [ASKED, {**ANSWERED, "tool_calls": None, "name": None}]},
            [ASKED, ANSWERED],
        ),  # Parquet's nulls
        ({"messages": [ASKED, ANSWERED], "conversations": None, "id": 7}, [ASKED, ANSWERED]),
        (
            {"messages": [ASKED, ANSWERED, ASKED]},
            [ASKED, ANSWERED],
        ),  # a question without answer teaches nothing
    ],
)
def test_chats_in_the_forms_people_have(row, messages):
    assert parse_row(row) == Chat(messages)


def test_tools_and_other_fields_reach_the_template():
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    parsed = parse_row({"messages": [ASKED, {**call, "content": None}], "tools": [{"name": "f"}]})
    assert parsed == Chat([ASKED, call], [{"name": "f"}])


def test_ready_tokens_come_before_chats():
    parsed = parse_row(
        {"input_ids": [1, 2, 3], "loss_mask": [False, True, True], "messages": [ASKED, ANSWERED]}
    )
    assert isinstance(parsed, ReadyTokens)
    assert (parsed.input_ids.tolist(), parsed.loss_mask.tolist()) == ([1, 2, 3], [0, 1, 1])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1, 2], "row is not an object .it is list"),
        (
            {"prompt": "Hello", "answer": "Hi"},
            r"no messages, conversations, or input_ids \+ .*columns: prompt, answer",
        ),
        ({"messages": None}, "no messages, conversations"),
        ({"messages": []}, "the chat is empty"),
        ({"messages": "Hello"}, "the chat is not a list of messages .it is str"),
        ({"messages": ["Hello"]}, "a message is not an object .it is str"),
        ({"messages": [{"role": "narrator", "content": "Hello"}]}, "unknown role .'narrator'"),
        ({"messages": [{"content": "Hello"}]}, "unknown role .None"),
        ({"messages": [ASKED]}, "no assistant turn"),
        ({"messages": [ANSWERED, ASKED]}, "the assistant speaks before the user"),
        ({"messages": [{"role": "user", "content": ""}, ANSWERED]}, "a message without text .role user"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}, ANSWERED]},
            "content of a message is not text",
        ),
        ({"messages": [{"role": "user", "content": 7}, ANSWERED]}, "content of a message is not text"),
        ({"messages": [ASKED, ANSWERED], "tools": "f"}, "tools is not a list .it is str"),
        ({"input_ids": [1, 2]}, "must come together .no loss_mask"),
        ({"loss_mask": [1, 1]}, "must come together .no input_ids"),
        ({"input_ids": [1, 2, 3], "loss_mask": [0, 1]}, "differ in length .3 and 2"),
        ({"input_ids": [1, 2], "loss_mask": [0, 2]}, "values other than 0 and 1"),
        ({"input_ids": "ab", "loss_mask": [0, 1]}, "input_ids is not a list of integers"),
        ({"input_ids": [[1], [2, 3]], "loss_mask": [0, 1]}, "input_ids is not a list of integers"),
        ({"input_ids": [1, 2], "loss_mask": [0, 0.5]}, "loss_mask is not a list of integers"),
    ],
)
def test_rows_that_cannot_be_used_say_why(row, message):
    with pytest.raises(RowError, match=message):
        parse_row(row)


def test_a_row_error_crosses_processes_with_its_reason():
    error = pickle.loads(pickle.dumps(RowError("unknown role", "'x'")))
    assert (error.reason, error.detail, str(error)) == ("unknown role", "'x'", "unknown role ('x')")
