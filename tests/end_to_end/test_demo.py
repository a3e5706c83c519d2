"""`make demo`, whole: what it leaves behind, and that the drafter it trained drafts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_lightning.export.zlab import load_zlab

ROOT = Path(__file__).parents[2]
KEYS = {
    "tau_before",
    "tau_after",
    "tau_first32",
    "tau_prompt_lookup",
    "heldout_prompts",
    "steps",
    "trained_tokens",
    "tokens_per_s",
    "padding_efficiency",
    "export_dir",
    "seconds",
}


@pytest.mark.slow
def test_the_demo_trains_exports_and_drafts():
    # On one thread (conftest.py): a second one would crawl beside another test.
    command = [sys.executable, "examples/demo/run.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2400)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    summary = json.loads((ROOT / "runs/demo/summary.json").read_text())
    assert summary.keys() >= KEYS
    assert summary["heldout_prompts"] >= 10
    assert summary["tau_before"] < 1.02  # an untrained drafter is right by chance only
    assert summary["tau_after"] > summary["tau_before"] + 0.1
    assert summary["padding_efficiency"] > 0.95
    config, _ = load_zlab(ROOT / summary["export_dir"])
    assert config.mask_token_id == 5
    assert (ROOT / "runs/demo/curves.png").stat().st_size > 10_000
    assert "equal to the target's own greedy text" in done.stdout
