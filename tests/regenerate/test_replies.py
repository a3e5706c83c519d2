"""What is sent, and what a reply means: tables."""

import json

import pytest

from dflash_lightning.regenerate.chats import Answer, open_chat
from dflash_lightning.regenerate.config import RegenerateConfig, ServerSettings
from dflash_lightning.regenerate.replies import (
    NonsenseError,
    RefusedError,
    asked_wait_s,
    read_answer,
    read_error,
    read_models,
    request_body,
    verdict,
    wait_s,
)

CONFIG = RegenerateConfig(input=("a.jsonl",), output="b.jsonl", max_new_tokens=9, temperature=0.5, top_p=0.9)
NOW, NOW_S = "Wed, 21 Oct 2015 07:28:00 GMT", 1_445_412_480.0


@pytest.mark.parametrize(
    ("means", "statuses"),
    [
        ("answer", [200]),
        ("away", [408, 425, 429, 502, 503, 504]),
        ("fault", [500, 501, 599]),
        ("row", [400, 409, 413, 422]),
        ("run", [301, 307, 401, 403, 404, 405]),
    ],
)
def test_a_status_says_who_is_concerned(means, statuses):
    assert {verdict(status) for status in statuses} == {means}


def test_waits_double_with_luck_up_to_half_a_minute():
    assert [wait_s(n, 0.0) for n in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert wait_s(3, 0.5) == 3.0
    assert wait_s(10**6, 0.0) == 30.0


@pytest.mark.parametrize(
    ("header", "asked", "wait"),
    [
        ("7", 7.0, 7.0),
        ("0.1", 0.1, 0.5),
        ("3600", 3600.0, 3600.0),
        *((odd, 0.0, 0.5) for odd in (None, "", "0", "-5", "nan", "inf", "1e999", "soon")),
        # all three forms of a date; NOW_S is 07:28:00 GMT
        ("Wed, 21 Oct 2015 07:28:07 GMT", 7.0, 7.0),
        ("Wednesday, 21-Oct-15 08:28:00 GMT", 3600.0, 3600.0),
        ("Wed Oct 21 07:29:00 2015", 60.0, 60.0),
        ("Wed, 21 Oct 2015 09:28:00 +0200", 0.0, 0.5),
        ("Wed, 21 Oct 2015 09:28:07 +0200", 7.0, 7.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0, 0.5),
        ("Tue, 20 Oct 2015 07:28:00 GMT", 0.0, 0.5),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0, 0.5),
        *(
            (odd, 0.0, 0.5)
            for odd in (
                " ",
                ",",
                "Wed, 32 Oct 2015 07:28:00 GMT",
                "Wed, 21 Oct 99999 07:28:00 GMT",
                f"Wed, 21 Oct {10**30} 07:28:00 GMT",
                "Wed, 21 Oct 2015 07:28:00 +9999",
                "Wed, 21 Oct 2015",
                "2015-10-21T07:28:07Z",
                "9" * 5_000 + "x",
            )
        ),
    ],
)
def test_a_server_may_ask_for_a_longer_wait(header, asked, wait):
    headers = {} if header is None else {"retry-after": header}
    assert asked_wait_s(headers, now_s=NOW_S) == asked
    assert asked_wait_s({**headers, "date": "never"}, now_s=NOW_S) == asked
    assert asked_wait_s({**headers, "date": NOW}, now_s=NOW_S + 86_400) == asked  # its clock counts, not ours
    assert wait_s(0, 0.0, asked_s=asked) == wait


def test_a_request_holds_what_decides_the_answer():
    given = {"messages": [{"role": "user", "content": "a", "id": 1}], "tools": [{"name": "f"}]}
    chat = open_chat(given, number=0, place="", turns="all")
    settings = ServerSettings(
        urls=("http://h",), template_arguments={"enable_thinking": False}, request={"min_p": 0.1}
    )
    assert request_body(chat, CONFIG, settings, "m") == {
        "model": "m",
        "messages": [{"role": "user", "content": "a"}],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": chat.seed(0),
        "stream": False,
        "tools": [{"name": "f"}],
        "chat_template_kwargs": {"enable_thinking": False},
        "min_p": 0.1,
    }


def test_earlier_reasoning_is_not_sent_as_in_serving():
    given = {"messages": [{"role": "user", "content": "a"}] * 2}
    given["messages"].insert(1, {"role": "assistant", "content": ""})
    chat = open_chat(given, number=0, place="", turns="all")
    chat.take(Answer("b", reasoning="hm"))
    sent = request_body(chat, CONFIG, ServerSettings(urls=("http://h",)), "m")["messages"]
    assert sent[1] == {"role": "assistant", "content": "b"}


def completion(message, finish="stop", **more):
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}], **more}).encode()


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (completion({"content": "a"}), Answer("a")),
        (completion({"content": None}), Answer("")),
        (completion({"content": "a"}, "length"), Answer("a", truncated=True)),
        (completion({"content": "a"}, usage={"completion_tokens": 3}), Answer("a", tokens=3)),
        (completion({"content": "a"}, usage=None), Answer("a")),
        (completion({"content": "a"}, usage={"completion_tokens": 0}), Answer("a")),
        (completion({"content": "a"}, usage={"completion_tokens": -7}), Answer("a")),
        (completion({"content": "a"}, usage={"completion_tokens": True}), Answer("a")),
        (completion({"content": "a"}, usage={"completion_tokens": "3"}), Answer("a")),
        (completion({"content": "a"}, usage={"completion_tokens": 3.0}), Answer("a")),
        (completion({"content": "a"}, usage=[3]), Answer("a")),
        (completion({"content": "a", "reasoning_content": "r"}), Answer("a", reasoning="r")),
        (completion({"content": "a", "reasoning": "r"}), Answer("a", reasoning="r")),
        (completion({"content": "a", "tool_calls": []}), Answer("a")),
    ],
)
def test_a_reply_becomes_an_answer(body, answer):
    assert read_answer(body) == answer


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "it is not JSON: ''"),
        (b"<html>" * 100, "it is not JSON: '<html><html>"),
        (b"\xff", "it is not JSON"),
        pytest.param(b"[" * 200_000, "it is not JSON", id="deep brackets"),
        (b"[]", "it is no JSON object"),
        (b"{}", "it is no chat completion: '{}'"),
        (b'{"choices": []}', "it is no chat completion"),
        (b'{"choices": [{"message": null, "finish_reason": "stop"}]}', "it is no chat completion"),
        (completion({"content": "a"}, None), "it is no finished chat completion"),
        (completion({"content": ["a"]}), "it is no finished chat completion"),
    ],
)
def test_nonsense_is_never_an_answer(body, message):
    with pytest.raises(NonsenseError, match="^" + message):
        read_answer(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (completion({"content": "a"}, "content_filter"), "the server ended the answer by 'content_filter'"),
        (completion({"content": None, "tool_calls": [{}]}, "tool_calls"), "the target calls a tool"),
    ],
)
def test_an_answer_may_be_of_no_use(body, message):
    with pytest.raises(RefusedError, match=message):
        read_answer(body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "too long"}}', "too long"),
        (b'{"object": "error", "message": "too\\nlong"}', "too long"),
        (b'{"detail": "too long"}', "too long"),
        (b'{"error": "too long"}', "too long"),
        (b'{"detail": [{"loc": 1}]}', "[{'loc': 1}]"),
        (b"too   long", "too long"),
        (b"", ""),
        (b"x" * 900, "x" * 500),
        pytest.param(b"[" * 200_000, "[" * 500, id="deep brackets"),
        pytest.param(b'{"error": ' * 200_000, ('{"error": ' * 60)[:500], id="deep objects"),
        (b"9" * 5_000, "9" * 500),  # Python reads no whole number of so many digits
    ],
)
def test_the_servers_own_words_are_found(body, words):
    assert read_error(body) == words


def test_models_are_listed():
    assert read_models(b'{"data": [{"id": "a"}, {"id": "b"}]}') == ["a", "b"]
    with pytest.raises(NonsenseError, match="it is no list of models"):
        read_models(b'{"data": [1]}')
