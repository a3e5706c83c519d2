"""An OpenAI-compatible server in a process of its own that says how well it drafts, as vLLM or SGLang would.

    python -m tests.evaluation.spec_server PORT KIND

KIND vllm, sglang, gauge, silent, or
    late         as vllm, but its /metrics page is not there before the first question
    garbage      its pages hold no numbers where there should be some
    refusing     lists its model, and refuses all questions

A question [status] is refused with this status, one that says [drip] is answered byte by byte, one that says
[brackets] with an error of nothing else; the others get as many tokens as they have words.
"""

import contextlib
import json
import sys
import threading
import time

from tests.regenerate import chat_server
from tests.regenerate.servers import RunningServer

VLLM = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="toy"}} {drafts}
vllm:spec_decode_num_drafts_created{{engine="0",model_name="toy"}} 1.7e+09
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="toy"}} {accepted}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="toy",position="0"}} {first}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="toy",position="1"}} {second}
vllm:time_to_first_token_seconds_sum{{engine="0"}} {waited}
vllm:time_to_first_token_seconds_count{{engine="0"}} {answers}
"""


class Handler(chat_server.Handler):
    def do_GET(self):
        kind, answers = self.server.kind, len(self.server.seen["bodies"])
        if self.path == "/metrics" and kind == "late" and not answers:
            self.reply(503, {"detail": "not yet"})
        elif self.path == "/metrics" and kind in ("vllm", "late"):
            # of each answer's 4 drafts, slot 1 stood in 3, slot 2 in 1
            # and each began after 0.25 s
            base = {
                "waited": 3 + answers / 4,
                "answers": answers,
                "drafts": 100 + 4 * answers,
                "accepted": 50 + 4 * answers,
            }
            page = VLLM.format(**base, first=40 + 3 * answers, second=10 + answers)
            self.raw(200, page.encode())
        elif self.path == "/metrics" and kind == "gauge":
            self.raw(
                200,
                b'sglang:spec_accept_length{tp_rank="0"} 2.5\nsglang:spec_accept_length{tp_rank="1"} 3.5\n',
            )
        elif self.path == "/metrics" and kind == "garbage":
            page = VLLM.format(
                drafts="NaN", accepted="what", first="", second="+Inf", waited="NaN", answers=""
            )
            self.raw(200, f"{page}sglang:spec_accept_length what\n".encode())
        elif self.path == "/server_info" and kind == "garbage":
            self.raw(200, b'{"internal_states": [{"avg_spec_accept_length": NaN}]}')
        elif self.path == "/get_server_info" and kind == "sglang":
            self.reply(200, {"internal_states": [{"avg_spec_accept_length": 3.25, "load": 1}]})
        else:
            super().do_GET()

    def answer(self, body, fault):
        super().answer(body, "400" if self.server.kind == "refusing" else fault)

    def complete(self, body, fault):
        time.sleep(0.02)
        text = body["messages"][-1]["content"]
        message = {"role": "assistant", "content": text}
        usage = {} if "uncounted" in text else {"usage": {"completion_tokens": len(text.split())}}
        whole = {"choices": [{"message": message, "finish_reason": "stop"}], **usage}
        if fault == "brackets":
            self.raw(400, b"[" * 200_000)
        elif fault == "drip":
            self.drip(json.dumps(whole).encode())
        else:
            self.reply(200, whole)

    def drip(self, body):
        """Over 5 s for a whole answer, and never long between two bytes."""
        self.raw(200, body, send=0)
        with contextlib.suppress(OSError):  # the client left
            for place in range(len(body)):
                self.wfile.write(body[place : place + 1])
                time.sleep(0.05)


class SpecServer(chat_server.ChatServer):
    def __init__(self, port, kind):
        self.kind = kind
        super().__init__(port, 0.0)
        self.RequestHandlerClass = Handler


class RunningSpecServer(RunningServer):
    """Use as a context."""

    def __init__(self, kind):
        self._words = ["-m", "tests.evaluation.spec_server", "0", kind]


def main():
    server = SpecServer(int(sys.argv[1]), sys.argv[2])
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
