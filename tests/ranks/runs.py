"""`cli.py fit` on the toy in processes of its own, as a user starts it."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.ranks.jobs import read_rows
from tests.ranks.pool import ROOT, environment, torchrun

PATIENCE = 300
"""Seconds for anything a run should do soon, imports included, on a machine that may be busy."""
LAUNCHES = {
    "alone": ([sys.executable], []),
    "lightning": ([sys.executable], ["--trainer.devices=2", "--trainer.strategy=ddp"]),
    "torchrun": (torchrun(2), ["--trainer.devices=2", "--trainer.strategy=ddp"]),
}


def toy_config(folder: Path, target: Path, store: Path, *, delay: float, **stop: Any) -> dict[str, Any]:
    return {
        "trainer": {
            "accelerator": "cpu",
            "max_epochs": 2,
            "accumulate_grad_batches": 2,
            "log_every_n_steps": 2,
            "enable_progress_bar": False,
            "enable_checkpointing": True,
            "default_root_dir": str(folder),
            "logger": {"class_path": "CSVLogger", "init_args": {"save_dir": str(folder), "name": "logs"}},
            "callbacks": [
                {"class_path": "GradNorm"},
                {"class_path": "BucketMix"},
                {"class_path": "StopOnSignal", "init_args": {"folder": str(folder / "stopped"), **stop}},
                {
                    "class_path": "tests.ranks.watched.Watched",
                    "init_args": {"folder": str(folder / "watch"), "delay": delay},
                },
            ],
        },
        "model": {
            "target": str(target),
            "target_settings": {"dtype": "float32"},
            "drafter": {"num_layers": 2},
            "mask_token": 52,
            "block_size": 4,
            "num_anchors": 5,
            "lr": 3e-3,
        },
        "data": {"store": str(store), "plan": {"edges": [12, 20, 32], "max_tokens": 96, "max_rows": 4}},
    }


@dataclass
class Fit:
    """One `cli.py fit`. Use it as a context manager: nothing it started survives."""

    folder: Path
    launch: str
    target: Path
    store: Path
    resume: Path | None = None
    delay: float = 0.0
    stop: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    values: dict[str, Any] | None = None
    """The whole config; None: the toy's."""
    environment: dict[str, str] = field(default_factory=dict)
    """Beside that of the tests."""
    process: Any = None

    def __enter__(self) -> "Fit":
        self.folder.mkdir(parents=True)
        config = self.folder / "toy.yaml"
        values = self.values or toy_config(
            self.folder, self.target, self.store, delay=self.delay, **self.stop
        )
        config.write_text(yaml.safe_dump(values))
        start, options = LAUNCHES[self.launch]
        resume = [f"--ckpt_path={self.resume}"] if self.resume else []
        with (self.folder / "output.txt").open("wb") as output:
            self.process = subprocess.Popen(
                [*start, "cli.py", "fit", f"--config={config}", *options, *resume, *self.words],
                cwd=ROOT,
                env=environment() | self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def output(self) -> str:
        return (self.folder / "output.txt").read_text(errors="replace")

    def events(self, rank: int) -> list[dict[str, Any]]:
        """What a rank has done so far."""
        path = self.folder / "watch" / f"rank{rank}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for(self, rank: int, count: int, event: str = "start") -> int:
        """Until a rank has begun `count` micro-batches; its process id."""
        deadline = time.monotonic() + PATIENCE
        while len(found := [e for e in self.events(rank) if e["event"] == event]) < count:
            assert self.process.poll() is None, f"the run ended early\n{self.output[-3000:]}"
            assert time.monotonic() < deadline, (
                f"no micro-batch {count} on rank {rank}\n{self.output[-3000:]}"
            )
            time.sleep(0.01)
        return int(found[0]["pid"])

    def finish(self) -> int:
        """The exit code that a user's shell would see; a hang fails the test."""
        try:
            return int(self.process.wait(PATIENCE))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run hangs\n{self.output[-3000:]}") from None

    @property
    def checkpoints(self) -> list[Path]:
        return sorted((self.folder / "stopped").glob("*"))

    @property
    def rows(self) -> list[dict[str, str]]:
        return read_rows(self.folder / "logs" / "version_0")
