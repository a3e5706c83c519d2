"""A small run of the benchmark: every way stores, and every figure is there. No ratio is judged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WAYS = ["ours, process", "ours, thread", "torch.save to disk", "AsyncCheckpointIO, upload_fileobj"]


@pytest.mark.slow
def test_a_small_run_gives_every_figure():
    words = ["-m", "benchmarks.checkpoint", "--json", "--bytes", "4e6", "--rounds", "1", "--idle", "0.1"]
    done = subprocess.run(
        [sys.executable, *words, "--ways", *WAYS],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert "round 1 of 1" in done.stderr  # people see that it goes on
    found = json.loads(done.stdout)
    assert list(found["ways"]) == WAYS
    for name, figures in found["ways"].items():
        assert figures["memcpy s"] > 0
        assert 0 < figures["blocked s"] <= figures["stored s"]
        assert (figures["p99"] is None) == (name == "torch.save to disk")  # no step while it saves
    assert found["ways"]["ours, process"]["kept"] > 2  # arenas
    alone = found["ranks"]["on the training thread"]
    assert alone["longest gap of rank 1 s"] > 2  # the store is slow, and rank 1 waits for rank 0
