"""A real server in a second process, and its faults."""

import threading
import time

import pytest

from dflash_lightning.regenerate.client import ChatClient, FailedError, ServerError
from dflash_lightning.regenerate.server import ServerTarget
from tests.data.chats import row
from tests.regenerate.answering import expected, open_for, question, read_rows, run, settings_for
from tests.regenerate.raw_server import http, serving
from tests.regenerate.servers import RunningServer
from tests.regenerate.test_replies import CONFIG

LATE = "no answer, and no time for another attempt (--deadline 1.5 s), the last"


def test_chats_are_answered_turn_by_turn_in_order_many_at_once(tmp_path):
    rows = [{**(row(f"q{n}", "", f"r{n}", "") if n % 3 else question(f"q{n}")), "id": n} for n in range(40)]
    with RunningServer(seconds=0.02) as server:
        written, status, summary = run(tmp_path, rows, server.url)
        assert written == [expected(given, n) for n, given in enumerate(rows)]
        assert [line["row"] for line in status] == list(range(40))
        assert {line["status"] for line in status} == {"ok"}
        seen = server.seen()
        assert set(seen["asked"].values()) == {1}
        assert 2 <= seen["busiest"] <= 4
    assert (summary.answers, summary.tokens) == (sum(1 + (n % 3 > 0) for n in range(40)), 7 * summary.answers)
    assert not list(tmp_path.glob("*.unfinished"))


@pytest.mark.parametrize("fault", ["503", "429", "502", "drop", "cut", "nonsense", "500", "double"])
def test_faults_that_pass_leave_no_trace(fault, chat_server, tmp_path):
    rows = [question(f"{fault} {n} [{fault}]") for n in range(3)] + [question(f"{fault} last")]
    written, status, _ = run(tmp_path, rows, chat_server.url)
    assert written == [expected(given, n) for n, given in enumerate(rows)]
    assert {line["status"] for line in status} == {"ok"}


def test_a_reply_that_does_not_come_is_asked_for_again(chat_server, tmp_path):
    written, _, _ = run(tmp_path, [question("[hang]")], chat_server.url, server={"timeout_s": 0.5})
    assert written == [expected(question("[hang]"), 0)]


@pytest.mark.parametrize(
    ("fault", "status", "reason", "detail"),
    [
        ("400:0", "failed", "the server refuses the request", "says 400: the server says 400"),
        ("500:0", "failed", "no answer in 3 attempts, the last", "says 500: the server says 500"),
        ("nonsense:0", "failed", "no answer in 3 attempts, the last", "replies nonsense: it is not JSON"),
        ("503:0", "failed", LATE, "says 503: the server says 503"),
        ("hang:0", "failed", LATE, "/v1/chat/completions: "),
        ("length", "truncated", "an answer reached the limit of new tokens", "answer 1"),
        ("empty", "skipped", "the target's answer is empty", "answer 1"),
        ("call", "skipped", "the target calls a tool", "answer 1"),
        ("filter", "skipped", "the server ended the answer by 'content_filter'", "answer 1"),
    ],
)
def test_a_row_that_gets_no_answer_says_why_and_the_others_go_on(
    fault, status, reason, detail, chat_server, tmp_path
):
    rows = [question("fine"), question(f"[{fault}]"), question("fine, too")]
    server = {"attempts": 3, "deadline_s": 1.5, "timeout_s": 1.0}
    written, lines, summary = run(tmp_path, rows, chat_server.url, server=server, max_failed=0.5)
    assert written == [expected(rows[0], 0), expected(rows[2], 2)]
    bad = lines[1]
    assert (bad["status"], bad["reason"], bad["place"]) == (status, reason, f"{tmp_path}/in.jsonl:2")
    assert detail in bad["detail"]
    assert summary.rows == {"ok": 2, status: 1}
    assert f"{status}: {reason}" in summary.table()


def test_reasoning_is_kept_beside_the_answer(chat_server, tmp_path):
    written, _, _ = run(tmp_path, [question("[think]")], chat_server.url)
    assert written[0]["messages"][1]["reasoning_content"] == "hm"


@pytest.mark.parametrize("status", ["401", "404"])
def test_what_concerns_every_row_stops_the_run_and_the_key_stays_secret(status, chat_server, tmp_path):
    secret = "sk-very-secret"
    with pytest.raises(ServerError, match=f"the server refuses every request: .* says {status}") as caught:
        run(tmp_path, [question(f"[{status}:0]")], chat_server.url, key=secret)
    assert secret not in str(caught.value)
    assert ("DFLASH_SERVER_KEY" in str(caught.value)) == (status == "401")
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert files
    assert not [p for p in files if secret.encode() in p.read_bytes()]
    assert f"Bearer {secret}" in chat_server.seen()["keys"]


def test_a_server_that_dies_stops_the_run_and_another_one_goes_on(tmp_path):
    rows = [question(f"q{n}") for n in range(30)]
    server = {"deadline_s": 1.0, "concurrency": 2}
    with RunningServer(seconds=0.05) as first:
        threading.Timer(0.4, first.process.kill).start()
        with pytest.raises(
            ServerError, match=r"no server answers, for \d+ s now .*run the same command to go on"
        ):
            run(tmp_path, rows, first.url, server=server)
    assert not (tmp_path / "out.jsonl").exists()
    with RunningServer() as second:
        written, _, _ = run(tmp_path, rows, second.url, server=server)
        assert 0 < len(second.seen()["asked"]) < len(rows)
    assert written == [expected(given, n) for n, given in enumerate(rows)]


@pytest.mark.parametrize(
    ("deadline_s", "fault"),
    [(20.0, "rest"), (3599.0, "rest"), (3600.0, "rest"), (20.0, "rest_until"), (3600.0, "rest_until")],
)
def test_a_server_that_asks_for_a_longer_wait_than_the_deadline_fails_no_row(
    deadline_s, fault, chat_server, tmp_path
):
    name = f"{deadline_s} {fault}"
    rows = [question(name), question(f"{name} [{fault}]"), question(f"{name} last")]
    server = {"deadline_s": deadline_s, "concurrency": 1}
    longer = f"asks to wait 3600 s, longer than --deadline {deadline_s:g} s lets any row wait"
    with pytest.raises(
        ServerError, match=f"{longer} .*says 429: come back in an hour.* command later to go on"
    ):
        run(tmp_path, rows, chat_server.url, server=server)
    (record,) = read_rows(tmp_path / "out.jsonl.unfinished" / "records.jsonl")
    assert record["status"] == "ok"
    written, status, _ = run(tmp_path, rows, chat_server.url, server=server)  # an hour later
    assert written == [expected(given, n) for n, given in enumerate(rows)]
    assert {line["status"] for line in status} == {"ok"}


def test_another_server_answers_while_one_asks_for_a_long_wait(chat_server, tmp_path):
    rows = [question(f"beside {n}") for n in range(4)]
    busy = http(b"{}", "Retry-After: 3600", status="429 Too Many Requests")
    with serving(*[busy] * 100) as resting:
        written, _, _ = run(tmp_path, rows, resting, chat_server.url, server={"concurrency": 2})
    assert written == [expected(given, n) for n, given in enumerate(rows)]


def test_several_servers_share_the_work_and_one_may_be_dead(chat_server, tmp_path):
    rows = [question(f"shared {n}") for n in range(6)]
    with RunningServer() as other:
        run(tmp_path, rows, chat_server.url, other.url, "http://127.0.0.1:9", server={"concurrency": 2})
        assert 0 < len(other.seen()["asked"]) < len(rows)


def test_no_thread_waits_on_when_the_run_is_left(chat_server):
    settings = settings_for(chat_server.url, timeout_s=30.0)
    rows = [question(f"[hang:0] left {n}") for n in range(3)] + [question("quick")]
    backend = ServerTarget(ChatClient(settings), CONFIG, settings, model="toy")
    started = time.monotonic()
    answers = backend.answer_all(open_for(given, n) for n, given in enumerate(rows))
    assert next(answers).row == 3
    answers.close()
    assert time.monotonic() - started < 20  # a reply would take 30 s
    assert not [t for t in threading.enumerate() if t.name.startswith("regenerate")]


def test_ctrl_c_while_chats_are_handed_out_leaves_no_thread_waiting(chat_server):
    def interrupted():
        yield from (open_for(question(f"[hang:0] out {n}"), n) for n in range(2))
        raise KeyboardInterrupt

    settings = settings_for(chat_server.url, timeout_s=30.0)
    backend = ServerTarget(ChatClient(settings), CONFIG, settings, model="toy")
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(backend.answer_all(interrupted()))
    assert time.monotonic() - started < 20


def test_the_model_is_asked_for(chat_server):
    assert ChatClient(settings_for("http://127.0.0.1:9", chat_server.url)).model() == "toy"


def test_nobody_there_is_one_message():
    client = ChatClient(settings_for("http://127.0.0.1:9"))
    message = r"no server answers \(http://127.0.0.1:9/v1/models: ConnectionRefusedError: .*is it running"
    with pytest.raises(ServerError, match=message):
        client.require_alive()


def test_an_address_that_serves_something_else_is_one_message(chat_server):
    client = ChatClient(settings_for(f"{chat_server.url}/other"))
    with pytest.raises(ServerError, match="/other/v1/models says 404: Not Found"):
        client.model()


def test_one_answer_can_be_asked_for_alone(chat_server):
    client = ChatClient(settings_for(chat_server.url))
    body = {"messages": question("alone")["messages"], "seed": 1, "temperature": 0.0}
    assert client.ask(body).text.startswith("answer ")
    with pytest.raises(FailedError, match="the server refuses the request: .* says 422"):
        client.ask({**body, "messages": question("[422]")["messages"]})
