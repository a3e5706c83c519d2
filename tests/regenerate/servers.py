"""Starts chat_server.py as a process, and asks it what it has seen."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]


class RunningServer:
    """Use as a context."""

    def __init__(self, *, seconds=0.0, port=0):
        self._words = ["-m", "tests.regenerate.chat_server", str(port), str(seconds)]

    def __enter__(self):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, *self._words], cwd=ROOT, stdin=pipe, stdout=pipe, text=True
        )
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *error):
        self.kill()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def seen(self):
        """busiest: most requests at once; asked: requests by messages; keys, bodies: of all of them; listed:
        how often the list of models was asked for."""
        with urllib.request.urlopen(f"{self.url}/seen") as reply:
            return json.loads(reply.read())
