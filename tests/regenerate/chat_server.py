"""An OpenAI-compatible server in a process of its own, whose faults stand in the questions.

A question may hold [fault] or [fault:n]: the first n requests (default: 1; 0: all) for this chat meet it.
An answer is a function of the messages, the seed and the settings, so that a test can say what it must be.

    python -m tests.regenerate.chat_server PORT [SECONDS PER ANSWER]      (PORT 0: any; it is printed)

It ends with the process that holds its standard input.
"""

import hashlib
import json
import re
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULT = re.compile(r"\[([a-z_]+|\d{3})(?::(\d+))?\]")


def answer_to(messages, *, seed=0, **settings):
    """What the server says."""
    text = json.dumps([[(m["role"], m["content"]) for m in messages], seed, settings], sort_keys=True)
    return f"answer {hashlib.sha256(text.encode()).hexdigest()[:12]}"


class ChatServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port, seconds):
        super().__init__(("127.0.0.1", port), Handler)
        self.seconds = seconds
        self.lock = threading.Lock()
        self.asked = Counter()
        self.seen = {"busiest": 0, "listed": 0, "keys": [], "bodies": []}
        self.busy = 0

    def handle_error(self, request, client_address):
        pass  # clients leave: some tests kill them


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        if self.path == "/v1/models":
            with server.lock:
                server.seen["listed"] += 1
            self.reply(200, {"object": "list", "data": [{"id": "toy"}]})
        elif self.path == "/seen":
            self.reply(200, {**server.seen, "asked": dict(server.asked)})
        else:
            self.reply(404, {"detail": "Not Found"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = json.dumps([m["content"] for m in body["messages"]])
        server = self.server
        with server.lock:
            server.asked[question] += 1
            server.seen["keys"].append(self.headers["Authorization"])
            server.seen["bodies"].append(body)
            server.busy += 1
            server.seen["busiest"] = max(server.seen["busiest"], server.busy)
            number = server.asked[question]
        time.sleep(server.seconds)
        with server.lock:  # before the reply, at which a client may already ask again
            server.busy -= 1
        found = FAULT.search(body["messages"][-1]["content"])
        fits = found and (found[2] == "0" or number <= int(found[2] or 1))
        self.answer(body, found[1] if fits else "")

    def answer(self, body, fault):
        if fault == "hang":
            time.sleep(30)
        elif fault == "drop":  # after the work was done
            self.close_connection = True
        elif fault == "429":
            self.reply(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.2"})
        elif fault == "rest":
            self.reply(429, {"error": {"message": "come back in an hour"}}, {"Retry-After": "3600"})
        elif fault == "rest_until":
            dates = {
                "Date": "Wed, 21 Oct 2015 07:28:00 GMT",
                "Retry-After": "Wed, 21 Oct 2015 08:28:00 GMT",
            }
            self.reply(429, {"error": {"message": "come back in an hour"}}, dates)
        elif fault == "401":
            sent = self.headers["Authorization"]
            self.reply(401, {"error": {"message": f"wrong key: {sent}"}})
        elif fault.isdigit():
            self.reply(int(fault), {"object": "error", "message": f"the server says {fault}"})
        elif fault == "nonsense":
            self.raw(200, b'{"choices": [{"message"')
        else:
            self.complete(body, fault)

    def complete(self, body, fault):
        settings = {k: body[k] for k in ("chat_template_kwargs", "top_k") if k in body}
        text = answer_to(body["messages"], seed=body["seed"], temperature=body["temperature"], **settings)
        message = {"role": "assistant", "content": "" if fault == "empty" else text}
        if fault == "think":
            message["reasoning_content"] = "hm"
        if fault == "call":
            message["tool_calls"] = [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]
        finish = {"length": "length", "filter": "content_filter", "call": "tool_calls"}.get(fault, "stop")
        choices = [{"index": 0, "message": message, "finish_reason": finish}]
        whole = {"choices": choices, "usage": {"completion_tokens": 7, "prompt_tokens": 1}}
        if fault == "cut":
            self.raw(200, json.dumps(whole).encode(), send=40)
            return
        self.reply(200, whole)
        if fault == "double":
            self.reply(200, whole)

    def reply(self, status, value, headers=None):
        self.raw(status, json.dumps(value).encode(), headers=headers)

    def raw(self, status, body, *, headers=None, send=None):
        self.send_response_only(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:send])
        self.wfile.flush()
        self.close_connection = self.close_connection or send is not None

    def log_message(self, *ignored):
        pass


def main():
    server = ChatServer(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
