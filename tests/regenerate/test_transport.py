"""One request: what may be its key, how long it may take, how it is stopped."""

import re
import socket
import threading

import pytest

from dflash_lightning.commands.regenerate import main as regenerate
from dflash_lightning.evaluation.prompts import Prompt
from dflash_lightning.evaluation.served import Asked, ask_server
from dflash_lightning.regenerate import transport as module
from dflash_lightning.regenerate.client import ChatClient, ServerError
from dflash_lightning.regenerate.transport import NETWORK_ERRORS, Transport
from tests.regenerate.answering import question, settings_for, write_rows
from tests.regenerate.raw_server import http, serving

SECRET = "sk-very-secret"
BAD_KEYS = {
    "carriage return": "sk-very\rsecret",
    "line end": "sk-very\nsecret",
    "header": "sk-very\r\nX-Secret: 1",
    "NUL": "sk-very\0secret",
    "latin-1": "sk-véry-secret",
    "typographic hyphen": "sk\u2011very-secret",
    "half a surrogate pair": "sk-very\udc80secret",  # how os.environ shows bytes that are no UTF-8
    "delete": "sk-very\x7fsecret",
}
REFUSED = "the key in DFLASH_SERVER_KEY holds a character that is no printable ASCII.* set it again"


@pytest.mark.parametrize("key", BAD_KEYS.values(), ids=BAD_KEYS)
def test_a_key_that_fits_into_no_header_is_refused_and_not_shown(key):
    asked = Asked(max_new_tokens=1)
    prompts = [Prompt([{"role": "user", "content": "a"}], "other", "f:1")]
    for use in (
        lambda: Transport(key),
        lambda: ChatClient(settings_for("http://h"), key),
        lambda: ask_server("http://127.0.0.1:9", prompts, asked, model="m", key=key),
    ):
        with pytest.raises(ValueError, match=REFUSED) as caught:
            use()
        assert "ecret" not in str(caught.value)
        assert "sk" not in str(caught.value)


@pytest.mark.parametrize(
    ("end", "shown"),
    [("\udce9", REFUSED), ("\r", "no server answers"), ("\n", "no server answers")],
)
def test_the_command_prints_no_key(end, shown, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DFLASH_SERVER_KEY", SECRET + end)
    given = write_rows(tmp_path / "in.jsonl", [question("a")])
    words = ["--input", str(given), "--output", str(tmp_path / "o.jsonl"), "--server", "http://127.0.0.1:9"]
    assert regenerate(words) == 1
    told = capsys.readouterr().err
    assert re.match(f"regenerate: {shown}", told)
    assert "secret" not in told


@pytest.mark.parametrize(("key", "sent"), [(f" {SECRET}\r\n", f"Bearer {SECRET}"), ("", None), (" \n", None)])
def test_what_stands_around_a_key_is_not_sent(key, sent, chat_server):
    body = {"messages": question(f"key {key!r}")["messages"], "seed": 1, "temperature": 0.0}
    assert ChatClient(settings_for(chat_server.url), key).ask(body)
    seen = chat_server.seen()
    (at,) = [n for n, told in enumerate(seen["bodies"]) if told["messages"] == body["messages"]]
    assert seen["keys"][at] == sent


SLOW = {
    "status line": b"HTTP/1.1 200 " + b"O" * 60 + b"\r\nContent-Length: 2\r\n\r\n{}",
    "headers": http(b"{}", f"X: {'x' * 60}"),
    "body": http(b" " * 60 + b"{}"),
    "body of a connection that is closed": http(b" " * 60 + b"{}", "Connection: close"),
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 20 + b"0\r\n\r\n",
    "body without a length": b"HTTP/1.0 200 OK\r\n\r\n" + b" " * 60,
}


@pytest.mark.parametrize("reply", SLOW.values(), ids=SLOW)
def test_a_reply_that_trickles_ends_in_time(reply):
    with (
        serving(reply, pause_s=0.01) as url,
        pytest.raises(TimeoutError, match=r"no whole reply within 0.3 s"),
    ):
        Transport().get(f"{url}/v1/models", timeout_s=0.3)


@pytest.mark.parametrize("reply", SLOW.values(), ids=SLOW)
def test_a_reply_that_comes_in_pieces_is_read_whole(reply):
    with serving(reply) as at_once, serving(reply, pause_s=0.0005) as in_pieces:
        first = Transport().get(f"{at_once}/v1/models", timeout_s=30.0)
        assert first == Transport().get(f"{in_pieces}/v1/models", timeout_s=30.0)
        assert first.status == 200


@pytest.mark.parametrize("reply", SLOW.values(), ids=SLOW)
def test_abort_wakes_whoever_reads(reply):
    transport = Transport()
    with serving(reply[:-2] + b" " * 3000, pause_s=0.01) as url:
        timer = threading.Timer(0.2, transport.abort)
        timer.start()
        end = "whole"
        try:
            end = transport.get(f"{url}/v1/models", timeout_s=25.0).body.decode()
        except NETWORK_ERRORS as error:
            end = str(error)
        timer.join()
    assert len(end) < 3000  # without a length, where the bytes end is the end of the reply
    assert "no whole reply" not in end


def test_a_host_that_takes_no_connection_is_left_soon(monkeypatch):
    """Its queue is full, so that further packets are dropped."""
    monkeypatch.setattr(module, "CONNECT_S", 0.3)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(listening.getsockname())
        with pytest.raises(TimeoutError, match=r"^no connection within 0.3 s$"):
            Transport().get(f"http://127.0.0.1:{listening.getsockname()[1]}/v1/models", timeout_s=30.0)
        for each in waiting:
            each.close()


def test_a_key_that_a_server_repeats_is_hidden_wherever_the_message_is_cut():
    for before in range(400, 520, 7):
        words = f'{{"error": "{"x" * before}{SECRET} is wrong"}}'.encode()
        with serving(http(words, status="400 Bad Request")) as url:
            reply = Transport(SECRET).post(f"{url}/v1/chat/completions", {}, timeout_s=5.0)
        assert b"sk-" not in reply.body
        assert b"*** is wrong" in reply.body


@pytest.mark.parametrize(
    "reply",
    [
        http(f'"{SECRET}" is no key'.encode()),
        http(f"{'x' * 70}{SECRET}".encode()),  # a short extract would end inside of the key
        http(SECRET.encode(), status="403 Forbidden"),
        f"HTTP/9 {SECRET}\r\n\r\n".encode(),
    ],
)
def test_a_list_of_models_that_holds_the_key_does_not_show_it(reply):
    with serving(reply) as url, pytest.raises(ServerError, match="no server answers") as caught:
        ChatClient(settings_for(url), SECRET).model()
    assert "sk-" not in str(caught.value)


def test_an_answer_may_hold_the_key_as_a_word():
    with serving(http(b'{"data": [{"id": "EMPTY"}]}')) as url:
        assert ChatClient(settings_for(url), "EMPTY").model() == "EMPTY"
