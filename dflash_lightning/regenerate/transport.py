"""One HTTP request, one connection, one reply.

in    address, body, key, the longest time for the whole reply
out   status, headers and body; OSError or HTTPException where the network fails
law   a connection is never used twice: bytes of a late or doubled reply cannot become the answer to another
      question; the key is in the header of the request and nowhere else; a reply that trickles ends in time
"""

import contextlib
import io
import json
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from dflash_lightning.regenerate.key import clean_key

NETWORK_ERRORS = (OSError, HTTPException)
CONNECT_S = 10.0
"""Longest wait for a connection, during which `abort` wakes nobody."""
SHOWN = 700  # characters of a message that hold what a server says


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""


class Transport:
    """For many threads; `abort` wakes those that wait for a reply."""

    def __init__(self, key: str | None = None) -> None:
        """Raises ValueError for a key that fits into no header."""
        self._key = clean_key(key)
        self._live: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._aborted = False

    def get(self, url: str, *, timeout_s: float) -> Reply:
        return self._send("GET", url, None, timeout_s)

    def post(self, url: str, body: Mapping[str, Any], *, timeout_s: float) -> Reply:
        return self._send("POST", url, json.dumps(body).encode(), timeout_s)

    def abort(self) -> None:
        """Every request, now and later, ends with an OSError."""
        with self._lock:
            self._aborted = True
            for sock in self._live:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def hidden(self, text: str) -> str:
        """`text` for people: shortened, and without the key, which some servers repeat in their messages."""
        return (text.replace(self._key, "***") if self._key else text)[:SHOWN]

    def _send(self, method: str, url: str, body: bytes | None, timeout_s: float) -> Reply:
        deadline = time.monotonic() + timeout_s
        parts = urlsplit(url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(str(parts.hostname), parts.port, timeout=min(CONNECT_S, timeout_s))
        try:
            sock = _connected(connection)
            with self._lock:
                if self._aborted:
                    raise ConnectionAbortedError("the run is being stopped")
                self._live.add(sock)
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            connection.request(method, parts.path, body, self._headers(body))
            incoming: Any = _Incoming(sock, deadline, f"no whole reply within {timeout_s:g} s")
            response = HTTPResponse(incoming, method=method)
            response.begin()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, self._without_key(response.status, response.read()), headers)
        finally:
            with self._lock:
                self._live.discard(connection.sock)
            connection.close()

    def _without_key(self, status: int, body: bytes) -> bytes:
        """What is no answer is there to be shown, in part: half a key would be found no more. An answer stays
        as it is, for it may hold a key such as EMPTY as a word."""
        return body.replace(self._key.encode(), b"***") if self._key and status != 200 else body

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers


def _connected(connection: HTTPConnection) -> socket.socket:
    try:
        connection.connect()
    except TimeoutError:
        raise TimeoutError(f"no connection within {connection.timeout:g} s") from None
    return connection.sock


class _Incoming(io.RawIOBase):
    """What a socket receives until the deadline; stands for the socket where a response reads."""

    def __init__(self, sock: socket.socket, deadline: float, too_late: str) -> None:
        self._sock, self._deadline, self._too_late = sock, deadline, too_late

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            self._sock.settimeout(left)
            return self._sock.recv_into(buffer)
        except TimeoutError:
            raise TimeoutError(self._too_late) from None
