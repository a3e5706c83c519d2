"""A real second process serves HTTP."""

import json
import threading
from functools import partial

import pytest

from dflash_lightning.evaluation.prompts import Prompt
from dflash_lightning.evaluation.served import Asked, ask_server, served_model
from dflash_lightning.evaluation.served_view import served_text, served_values
from dflash_lightning.regenerate.client import ServerError
from tests.evaluation.spec_server import RunningSpecServer

ASKED = Asked(max_new_tokens=9, concurrency=3, temperature=0.5, top_k=4, seed=2)
ask = partial(ask_server, model="toy")


def prompts(*questions, category="all"):
    return [
        Prompt([{"role": "user", "content": text}], category, f"p:{i}") for i, text in enumerate(questions)
    ]


@pytest.fixture(scope="module")
def vllm():
    with RunningSpecServer("vllm") as server:
        yield server


def test_latency_tokens_and_acceptance(vllm):
    heard = []
    questions = prompts("one two three", "four five", "six")
    served = ask(vllm.url, questions, ASKED, key="sesame", on_reply=lambda: heard.append(1))
    assert (len(served.answered), served.tokens, len(heard)) == (3, 6, 3)
    assert served.model == "toy"
    assert 0.02 <= served.latency(0.5) <= served.latency(0.95) <= served.seconds
    assert served.tokens_per_s == pytest.approx(6 / served.seconds)
    assert served.speculation.tau == 2.0  # 1 + 4 accepted of 4 drafts per answer
    assert served.speculation.slots == (0.75, 0.25)
    assert served.speculation.rounds == 12
    assert served.first_token_s == 0.25
    body = vllm.seen()["bodies"][0]
    assert (body["max_tokens"], body["temperature"], body["top_k"]) == (9, 0.5, 4)
    assert vllm.seen()["keys"][0] == "Bearer sesame"
    text = served_text([served], ASKED)
    assert ["acceptance", "length", "2.00"] in [line.split() for line in text.splitlines()]
    assert "75.0%, 25.0%" in text
    assert "at most 9 tokens per answer, 3 requests at once" in text
    assert "0.250 s, according to the server" in text
    values = json.loads(json.dumps(served_values(served), allow_nan=False))
    assert (values["tau"], values["first_token_mean_s"]) == (2.0, 0.25)


@pytest.mark.parametrize(
    ("kind", "tau", "source"),
    [
        ("late", 1 + 54 / 104, "vLLM's counters, since the server started"),
        ("garbage", None, ""),
        ("sglang", 3.25, "since the server started"),
        ("gauge", 3.0, "SGLang's gauge"),
        ("silent", None, ""),
    ],
)
def test_what_other_servers_report(kind, tau, source):
    with RunningSpecServer(kind) as server:
        served = ask(server.url, prompts("one two"), ASKED)
    if tau is None:
        assert served.speculation is None
        assert "not reported" in served_text([served], ASKED)
    else:
        assert served.speculation.tau == pytest.approx(tau)
        assert source in served_text([served], ASKED)
    json.dumps(served_values(served), allow_nan=False)


def test_prompt_i_is_sampled_with_seed_n_plus_i():
    with RunningSpecServer("silent") as server:
        for _ in range(2):  # the same in every run
            ask(server.url, prompts("zero", "one", "two"), ASKED)
        bodies = server.seen()["bodies"]
    seeds = [(body["messages"][0]["content"], body["seed"]) for body in bodies]
    assert sorted(seeds) == [("one", 3), ("one", 3), ("two", 4), ("two", 4), ("zero", 2), ("zero", 2)]


def test_an_answer_that_drips_is_waited_for_no_longer_than_one_that_stays_away(vllm):
    asked = Asked(max_new_tokens=9, timeout_s=1.5)
    served = ask(vllm.url, prompts("one two", "[drip] no", "three"), asked)
    assert [bool(reply.failure) for reply in served.replies] == [False, True, False]
    assert "1 failed: TimeoutError: no whole reply within 1.5 s" in served_text([served], asked)
    assert served.seconds < served.replies[1].seconds  # its wait is in no speed
    assert served.replies[2].started > served.replies[1].seconds


def test_categories_have_latencies_of_their_own(vllm):
    questions = [*prompts("one two", "three four", category="maths"), *prompts("[500:0] no", category="chat")]
    served = ask(vllm.url, questions, ASKED)
    lines = [line.split() for line in served_text([served], ASKED).splitlines()]
    assert [vllm.url, "by", "category"] in lines
    assert ["chat", "0", "of", "1", "0", "-", "-", "-"] in lines
    assert any(line[:5] == ["maths", "2", "of", "2", "4"] for line in lines)
    values = json.loads(json.dumps(served_values(served), allow_nan=False))["categories"]
    assert values["maths"]["latency_median_s"] > 0
    assert (values["chat"]["requests"], values["chat"]["latency_median_s"]) == (1, None)


def test_only_prompts_that_both_servers_answered_are_compared(vllm):
    first = ask(vllm.url, prompts("a", "[500:0] b", "c"), ASKED)
    second = ask(vllm.url, prompts("d", "e", "f"), ASKED)
    assert "per request, over the 2 prompts that both answered" in served_text([first, second], ASKED)
    other = ask(vllm.url, prompts("[500:0] g", "h", "[500:0] i"), ASKED)
    assert "no prompt was answered by both, so that there are no speeds" in served_text([first, other], ASKED)


def test_an_error_of_deep_brackets_is_a_failure_like_others():
    with RunningSpecServer("silent") as server:
        served = ask(server.url, prompts("fine", "[brackets]"), ASKED)
    assert served.replies[1].failure.startswith("400: [[[[[")


def test_failures_are_counted_and_said(vllm):
    served = ask(vllm.url, prompts("fine", "[500:0] no", "an uncounted one"), ASKED)
    assert len(served.answered) == 1
    text = served_text([served, served], ASKED)
    assert "1 failed: 500: the server says 500" in text
    assert "1 failed: the server does not say how many tokens it generated" in text
    assert "speed of the first over the second: 1.00 in all, 1.00 per request" in text


def test_a_server_that_answers_nothing_is_an_error(vllm):
    with pytest.raises(ConnectionError, match="answered none of 1 requests, the first: 400: the server says"):
        ask(vllm.url, prompts("[400:0] no"), ASKED)
    with pytest.raises(ConnectionError) as caught:
        ask(vllm.url, prompts("[401:0] no"), ASKED, key="sesame")
    assert "wrong key: Bearer ***" in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_a_server_that_is_down():
    with RunningSpecServer("silent") as server:
        url = server.url
    with pytest.raises(ServerError, match="no server answers .* is it running, and is the address right"):
        served_model(url, ASKED)
    with pytest.raises(ValueError, match="is no address such as http://localhost:8000"):
        served_model("localhost", ASKED)


def test_a_server_that_dies_on_the_way(vllm):
    with RunningSpecServer("silent") as server:
        killer = threading.Timer(0.3, server.process.kill)
        killer.start()
        served = ask(server.url, prompts(*["one two"] * 200), Asked(max_new_tokens=9))
        killer.join()
    assert 0 < len(served.answered) < 200
    assert "failed: ConnectionRefusedError" in served_text([served], ASKED)
