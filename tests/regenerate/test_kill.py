"""The command as its user runs it: killed at random moments, it goes on; no row is lost or there twice."""

import random
import signal
import subprocess
import sys
import time

import pytest

from tests.data.chats import row
from tests.regenerate.answering import expected, question, read_rows, write_rows
from tests.regenerate.servers import ROOT, RunningServer

ROWS = 90
KILLS = 5


def lines_of(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.slow
def test_kills_at_random_moments_lose_no_row_and_double_none(tmp_path):
    rows = [row(f"q{n}", "", f"r{n}", "") if n % 2 else question(f"q{n}") for n in range(ROWS)]
    luck = random.Random(0)
    given, out = write_rows(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    journal = tmp_path / "out.jsonl.unfinished" / "records.jsonl"
    with RunningServer(seconds=0.05) as server:
        words = ["--input", str(given), "--output", str(out), "--server", server.url, "--concurrency", "3"]
        command = [sys.executable, "cli.py", "regenerate", *words]
        for _ in range(KILLS):
            process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
            enough = lines_of(journal) + luck.randrange(1, 10)
            while lines_of(journal) < enough and process.poll() is None:
                time.sleep(0.005)
            time.sleep(luck.random() * 0.1)
            process.kill()
            assert process.wait() == -signal.SIGKILL  # it had not finished
            assert not out.exists()
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        asked = server.seen()["asked"]
    assert read_rows(out) == [expected(given, n) for n, given in enumerate(rows)]
    assert [line["row"] for line in read_rows(tmp_path / "out.jsonl.status")] == list(range(ROWS))
    assert 0 < sum(asked.values()) - len(asked) <= KILLS * 3 * 2  # what was on its way is asked for once more
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl", "out.jsonl.status"]


@pytest.mark.slow
def test_ctrl_c_ends_at_once_and_says_how_to_go_on(tmp_path):
    given, out = write_rows(tmp_path / "in.jsonl", [question(f"{n} [hang:0]") for n in range(9)]), "out.jsonl"
    with RunningServer() as server:
        words = ["--input", str(given), "--output", str(tmp_path / out), "--server", server.url]
        process = subprocess.Popen(
            [sys.executable, "cli.py", "regenerate", *words], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        while not server.seen()["asked"] and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "regenerate: stopped; run the same command to go on\n")
    assert time.monotonic() - started < 20  # a reply would take 30 s
