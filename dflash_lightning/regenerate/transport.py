"""One HTTP request, one connection, one reply.

in    address, body, key, the longest wait for the next byte
out   status, headers and body; OSError or HTTPException where the network fails
law   a connection is never used twice: bytes of a late or doubled reply cannot become the answer to another
      question; the key is in the header of the request and nowhere else
"""

import contextlib
import json
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

NETWORK_ERRORS = (OSError, HTTPException)


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""


class Transport:
    """For many threads; `abort` wakes those that wait for a reply."""

    def __init__(self, key: str | None = None) -> None:
        self._key = key
        self._live: set[HTTPConnection] = set()
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
            for connection in self._live:
                if connection.sock is not None:
                    with contextlib.suppress(OSError):
                        connection.sock.shutdown(socket.SHUT_RDWR)

    def hidden(self, text: str) -> str:
        """`text` without the key: some servers repeat it in their messages."""
        return text.replace(self._key, "***") if self._key else text

    def _send(self, method: str, url: str, body: bytes | None, timeout_s: float) -> Reply:
        parts = urlsplit(url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(str(parts.hostname), parts.port, timeout=timeout_s)
        try:
            with self._lock:
                self._live.add(connection)
            connection.connect()
            if self._aborted:
                raise ConnectionAbortedError("the run is being stopped")
            connection.request(method, parts.path, body, self._headers(body))
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, response.read(), headers)
        finally:
            with self._lock:
                self._live.discard(connection)
            connection.close()

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers
