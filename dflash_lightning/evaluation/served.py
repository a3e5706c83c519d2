"""Asks a running OpenAI-compatible server, and times it from outside.

in    address, prompts, how many are asked at once
out   Served: when each request was sent, how long its answer took; what the server itself reports
law   each prompt is asked once and never again: a repeated request would be answered faster, from a cache;
      one that fails is counted, not hidden
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from dflash_lightning.evaluation.answered import Reply, Served
from dflash_lightning.evaluation.first_token import first_token_s
from dflash_lightning.evaluation.prompts import Prompt
from dflash_lightning.evaluation.speculation import (
    Speculation,
    from_counters,
    from_gauge,
    from_server_info,
)
from dflash_lightning.regenerate.client import ChatClient
from dflash_lightning.regenerate.config import ServerSettings
from dflash_lightning.regenerate.replies import NonsenseError, RefusedError, read_answer, read_error
from dflash_lightning.regenerate.transport import NETWORK_ERRORS, Transport

PROBE_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What every request asks for."""

    max_new_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    """Of the first prompt; the next has the next."""
    template_arguments: Mapping[str, Any] = field(default_factory=dict)
    """Sent as chat_template_kwargs."""
    concurrency: int = 1
    """Requests that are waited for at once."""
    timeout_s: float = 600.0

    def body(self, prompt: Prompt, model: str, *, number: int) -> dict[str, Any]:
        """`number` of the prompt: it adds to the seed, so that a prompt has the same luck in every run."""
        tools = {} if prompt.tools is None else {"tools": list(prompt.tools)}
        top_k = {"top_k": self.top_k} if self.top_k else {}
        arguments = self.template_arguments
        template = {"chat_template_kwargs": dict(arguments)} if arguments else {}
        return {
            "model": model,
            "messages": list(prompt.messages),
            "max_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed + number,
            "stream": False,
            **top_k,
            **template,
            **tools,
        }


def served_model(url: str, asked: Asked, *, model: str | None = None, key: str | None = None) -> str:
    """The name of the model to ask for, from a server that answers.

    Raises:
        ServerError: the server does not answer.
        ValueError: the address is none, or the server serves several models and none is named.
    """
    settings = ServerSettings(urls=(url,), timeout_s=asked.timeout_s, concurrency=asked.concurrency)
    client = ChatClient(settings, key)
    if model is not None:
        client.require_alive()
        return model
    try:
        return client.model()
    except ValueError as error:
        raise ValueError(f"{url}: {error}") from error


def ask_server(
    url: str,
    prompts: Sequence[Prompt],
    asked: Asked,
    *,
    model: str,
    key: str | None = None,
    on_reply: Callable[[], None] = lambda: None,
) -> Served:
    """Ask every prompt once. `model`: of served_model, which has found the server alive.

    Raises:
        ConnectionError: none of the requests was answered.
        ValueError: the address is none.
    """
    settings = ServerSettings(urls=(url,), timeout_s=asked.timeout_s, concurrency=asked.concurrency)
    base = settings.bases[0]
    root = base.removesuffix("/v1")
    transport = Transport(key)
    before = _page(transport, f"{root}/metrics")
    started = time.perf_counter()

    def ask(number: int) -> Reply:
        prompt, sent = prompts[number], time.perf_counter()
        body = asked.body(prompt, model, number=number)
        reply = _ask(transport, f"{base}/chat/completions", prompt, body, asked.timeout_s)
        on_reply()
        return replace(reply, started=sent - started)

    with _threads(asked.concurrency, transport) as threads:
        replies = tuple(threads.map(ask, range(len(prompts))))
    _require_some(url, replies)
    after = _page(transport, f"{root}/metrics")
    speculation = _speculation(transport, root, before, after)
    return Served(url, model, replies, speculation, first_token_s(before, after))


def _ask(transport: Transport, url: str, prompt: Prompt, body: Mapping[str, Any], timeout_s: float) -> Reply:
    started = time.perf_counter()
    try:
        reply = transport.post(url, body, timeout_s=timeout_s)
        taken = time.perf_counter() - started
        if reply.status != 200:
            words = transport.hidden(f"{reply.status}: {read_error(reply.body)}")
            return Reply(prompt.category, taken, failure=words)
        answer = read_answer(reply.body)
    except (*NETWORK_ERRORS, NonsenseError, RefusedError) as error:
        failure = transport.hidden(f"{type(error).__name__}: {error}")
        return Reply(prompt.category, time.perf_counter() - started, failure=failure)
    if not answer.tokens:
        return Reply(prompt.category, taken, failure="the server does not say how many tokens it generated")
    return Reply(prompt.category, taken, tokens=answer.tokens)


@contextmanager
def _threads(count: int, transport: Transport) -> Iterator[ThreadPoolExecutor]:
    """On Ctrl-C nothing waits for answers that nobody reads."""
    threads = ThreadPoolExecutor(count, thread_name_prefix="evaluate")
    try:
        yield threads
    except BaseException:
        transport.abort()
        threads.shutdown(wait=False, cancel_futures=True)
        raise
    threads.shutdown()


def _require_some(url: str, replies: Sequence[Reply]) -> None:
    failed = [reply.failure for reply in replies if reply.failure]
    if len(failed) == len(replies):
        raise ConnectionError(f"{url} answered none of {len(replies)} requests, the first: {failed[0]}")


def _speculation(transport: Transport, root: str, before: str, after: str) -> Speculation | None:
    found = from_counters(before, after)
    for path in ("server_info", "get_server_info"):
        found = found or from_server_info(_page(transport, f"{root}/{path}"))
    return found or from_gauge(after)


def _page(transport: Transport, url: str) -> str:
    """Empty where the server has no such page: what it would say is optional."""
    try:
        reply = transport.get(url, timeout_s=PROBE_TIMEOUT_S)
    except NETWORK_ERRORS:
        return ""
    return reply.body.decode(errors="replace") if reply.status == 200 else ""
