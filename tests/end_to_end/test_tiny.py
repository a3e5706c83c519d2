"""The README's commands on the tiny target, as a user types them: real processes, rows to drafted text."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.manifest import Manifest
from dflash_lightning.checkpoint.resuming.address import local_copy
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.settings import StoreSettings
from dflash_lightning.export.zlab import load_zlab

ROOT = Path(__file__).parents[2]
TARGET = "examples/tiny/target"
LIMIT_S = 600

pytestmark = pytest.mark.slow


def cli(*words, code=0, **options):
    """Run cli.py to its end; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "cli.py", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        **options,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Folder of a prepared store and a finished run."""
    folder = tmp_path_factory.mktemp("tiny")
    rows = ROOT / "examples/tiny/rows.jsonl"
    cli("prepare", "--input", rows, "--target", TARGET, "--output", folder / "store")
    cli(*fit_words(folder, folder / "run"))
    return folder


def fit_words(folder: Path, run: Path, *more):
    """`fit` with the shipped config, writing below `run`; 30 optimizer steps are enough to see it learn."""
    save = {
        "class_path": "S3Checkpoint",
        "init_args": {"uri": str(run / "checkpoints"), "every_n_steps": 10, "monitor": "val/tau"},
    }
    return [
        *(
            "fit",
            "--config",
            "configs/tiny.yaml",
            f"--data.store={folder / 'store'}",
            "--trainer.max_steps=30",
        ),
        f"--trainer.default_root_dir={run}",
        f"--trainer.logger.init_args.save_dir={run}",
        f"--trainer.callbacks=[StopOnSignal, {save}]",
        *more,
    ]


def weights(address: Path) -> dict[str, torch.Tensor]:
    with local_copy(str(address), StoreSettings()) as path:
        return torch.load(path, weights_only=True)["state_dict"]


def manifests(run: Path) -> list[Manifest]:
    """Newest first."""
    return list(list_manifests(LocalStore(run / "checkpoints"), "").manifests)


def test_fit_writes_what_a_user_looks_for(run):
    (log,) = (run / "run" / "logs").iterdir()
    assert {"metrics.csv", "config.yaml"} <= {path.name for path in log.iterdir()}
    assert manifests(run / "run")[0].step == 30
    listed = cli("checkpoints", "list", run / "run/checkpoints")
    assert "val/tau" in listed
    assert max(map(len, listed.splitlines())) <= 100
    assert f"checkpoints lie in {run / 'run/checkpoints'}" in cli("checkpoints", "list", run / "run")


def test_export_takes_the_newest_the_best_and_a_step(run, tmp_path):
    for which in ("", "last", "best", "step=30"):
        cli("export", "--checkpoint", run / "run/checkpoints" / which, "--output", tmp_path / which)
        assert load_zlab(tmp_path / which)


def test_export_loads_and_generate_is_the_targets_own_text(run, tmp_path):
    drafter = tmp_path / "drafter"
    cli("export", "--checkpoint", run / "run/checkpoints", "--output", drafter)
    config, _ = load_zlab(drafter)
    assert config.block_size == 8
    words = ("--target", TARGET, "--drafter", drafter, "--raw", "--prompt", "def main(", "--check")
    text = cli("generate", *words, "--dtype", "float32", "--max-new-tokens", "64")
    tau = float(re.search(r"acceptance length \(tau\) (\d+\.\d+)", text).group(1))
    assert tau > 1.0


def test_validate_prints_the_acceptance_length(run):
    words = ("validate", "--config", "configs/tiny.yaml", f"--data.store={run / 'store'}")
    quiet = (f"--trainer.default_root_dir={run}", "--trainer.logger=false", "--trainer.callbacks=[]")
    text = cli(*words, *quiet, f"--ckpt_path={run / 'run/checkpoints/best'}")
    assert "val/tau" in text


def test_test_measures_rows_of_a_store_of_their_own(run, tmp_path):
    rows = (ROOT / "examples/tiny/rows.jsonl").read_text().splitlines(keepends=True)
    chats = tmp_path / "rows.jsonl"
    chats.write_text("".join(rows[:3]))
    store = ("--output", tmp_path / "store", "--validation-share", "1")
    cli("prepare", "--input", chats, "--target", TARGET, *store)
    words = ("test", "--config", "configs/tiny.yaml", f"--data.store={run / 'store'}")
    quiet = (f"--trainer.default_root_dir={run}", "--trainer.logger=false")
    which = (f"--data.test_store={tmp_path / 'store'}", f"--ckpt_path={run / 'run/checkpoints/best'}")
    text = cli(*words, *quiet, *which, "--config", "configs/callbacks/held_out_decoding.yaml")
    assert re.search(r"test at step \d+: \d", text)
    assert "3 held-out prompts decoded" in text
    assert "test/decode_tau" in text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signalled_run_stops_with_a_checkpoint_and_resumes_exactly(run, number, code, tmp_path):
    # Stored by a thread: a process of its own may begin only when a busy machine has trained to the end.
    words = [sys.executable, "cli.py", *fit_words(run, tmp_path, "--trainer.callbacks.process=false")]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    metrics = tmp_path / "logs/version_0/config.yaml"
    deadline = time.monotonic() + LIMIT_S
    while not metrics.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    while not list(tmp_path.glob("checkpoints/manifests/*")) and time.monotonic() < deadline:
        time.sleep(0.05)  # a checkpoint after 10 steps: training is under way
    process.send_signal(number)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == code, output.decode()
    assert "resume with --ckpt_path" in output.decode()
    stopped = manifests(tmp_path)[0]
    assert stopped.kind == "signal"
    assert 10 <= stopped.step < 30

    cli(*fit_words(run, tmp_path, "--ckpt_path=last"))
    ours, whole = (
        weights(tmp_path / "checkpoints/step=30"),
        weights(run / "run/checkpoints/step=30"),
    )
    assert all(torch.equal(value, whole[name]) for name, value in ours.items())
    assert {p.name for p in (tmp_path / "logs").iterdir()} == {"version_0", "version_1"}


def test_a_wrong_value_is_one_message(run):
    bad = cli(*fit_words(run, run / "bad", "--data.plan.edges=[64]", "--data.plan.max_tokens=64"), code=1)
    assert "samples are longer than 64 tokens, the last of plan.edges" in bad
    missing = cli(*fit_words(run / "nowhere", run / "bad"), code=1)
    assert "python cli.py prepare" in missing


def test_two_ranks_started_by_lightning_train(run, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    cli(
        *fit_words(run, tmp_path, "--trainer.devices=2", "--trainer.strategy=ddp", "--trainer.max_steps=10"),
        env=environment,
    )
    assert weights(tmp_path / "checkpoints/step=10")
