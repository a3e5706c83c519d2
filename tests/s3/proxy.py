"""A proxy in front of an S3 server that fails as a test asks, and passes everything else on byte for byte.

in    rules: which requests (method, path, query), how often, what happens
out   the answers of the server, or the failure; a log of every request
law   signatures stay valid: the Host header is passed on as the client signed it
"""

import http.client
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

from tests.s3.server import Weed

Does = Literal[
    "answer",  # an error of S3 after `seconds`, the server is not asked
    "hang",  # nothing comes back for `seconds`
    "flip_up",  # one bit of the body changes on its way to the server
    "flip_down",  # one bit of the body changes on its way back
    "lose",  # the server does its work, the connection closes without an answer
    "cut",  # half of the answer's body, then the connection closes
]


@dataclass
class Rule:
    """The first rule that fits a request and has something left applies to it."""

    does: Does
    method: str = ""
    path: str = ""
    """Text in the path, such as a key."""
    query: str = ""
    """Text in the query: "partNumber", "uploads", "uploadId=" with method POST for Complete."""
    times: int | None = 1
    """Requests it applies to; None: all."""
    status: int = 503
    code: str = "SlowDown"
    seconds: float = 0.0
    until_key_is_not: str = ""
    """Only while requests are signed with this access key id."""
    seen: int = 0

    def fits(self, method: str, target: str, authorization: str) -> bool:
        path, _, query = target.partition("?")
        return (
            (self.times is None or self.seen < self.times)
            and self.method in ("", method)
            and self.path in path
            and self.query in query
            and self.until_key_is_not in authorization
        )


@dataclass
class FaultProxy:
    """Use as a context. `rules` may change while it runs."""

    weed: Weed
    rules: list[Rule] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """(method, path with query), in the order they came."""
    crowds: list[int] = field(default_factory=list)
    """For each of them, how many were being worked on, itself included."""

    def __enter__(self) -> "FaultProxy":
        self._lock = threading.Lock()
        self._busy_with = 0
        self._stopping = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def settings(self, **changes):
        return self.weed.settings(self.endpoint, **changes)

    def add(self, does: Does, **which) -> Rule:
        rule = Rule(does, **which)
        self.rules.append(rule)
        return rule

    def expire(self, access_key_id: str) -> Rule:
        """ExpiredToken until requests are signed with another key."""
        return self.add("answer", status=400, code="ExpiredToken", times=None, until_key_is_not=access_key_id)

    def count(self, method: str, text: str = "") -> int:
        return sum(m == method and text in target for m, target in self.requests)

    def rule_for(self, method: str, target: str, authorization: str) -> Rule | None:
        with self._lock:
            self.requests.append((method, target))
            self._busy_with += 1
            self.crowds.append(self._busy_with)
            for rule in self.rules:
                if rule.fits(method, target, authorization):
                    rule.seen += 1
                    return rule
        return None

    def done(self) -> None:
        """Before the answer goes out: the client cannot know sooner."""
        with self._lock:
            self._busy_with -= 1

    def wait(self, seconds: float) -> None:
        self._stopping.wait(seconds)


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_request(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            rule = proxy.rule_for(self.command, self.path, self.headers.get("Authorization") or "")
            does = rule.does if rule else "pass"
            if rule and does == "answer":
                proxy.wait(rule.seconds)
                proxy.done()
                self.reply(rule.status, [], _error(rule.code))
                return
            if rule and does == "hang":
                proxy.wait(rule.seconds)
                proxy.done()
                self.close_connection = True
                return
            status, headers, answer = self.ask_server(_flipped(body) if does == "flip_up" else body)
            proxy.done()
            if does == "lose":
                self.close_connection = True
            elif does == "cut":
                self.reply(status, headers, answer, send=len(answer) // 2)
                self.close_connection = True
            else:
                self.reply(status, headers, _flipped(answer) if does == "flip_down" else answer)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_request

        def handle_expect_100(self) -> bool:
            return super().handle_expect_100()

        def ask_server(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            host = re.sub("^http://", "", proxy.weed.endpoint)
            connection = http.client.HTTPConnection(host, timeout=60)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            try:
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            except OSError:
                return 502, [], _error("BadGateway")
            finally:
                connection.close()

        def reply(
            self, status: int, headers: list[tuple[str, str]], body: bytes, *, send: int | None = None
        ) -> None:
            self.send_response_only(status)
            length = str(len(body))
            for name, value in headers:
                if name.lower() == "content-length" and self.command == "HEAD":
                    length = value
                elif name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[:send])

        def log_message(self, *ignored: object) -> None:
            pass  # a test run is no place for an access log

    return Handler


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :] if data else data


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>by the test</Message></Error>".encode()
