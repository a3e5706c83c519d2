"""Real processes under torchrun, kept for many jobs. A job that hangs fails its test and ends the pool."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
START_SECONDS = 300
"""Importing torch and lightning once per rank, on a machine that may be busy."""


def environment() -> dict[str, str]:
    """One thread a rank: more of them beside another busy process run many times slower."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    return {**inherited, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": str(ROOT)}


def torchrun(world: int) -> list[str]:
    """The beginning of a command line that runs the rest on `world` ranks of this machine."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={world}"]


class JobFailed(AssertionError):
    """A rank raised; `errors` has one entry for each rank, None where it returned."""

    def __init__(self, errors: list[str | None]) -> None:
        super().__init__("\n".join(f"rank {rank}: {error}" for rank, error in enumerate(errors)))
        self.errors = errors


class Ranks:
    """`world` processes. `run` gives the same job to all of them and returns their results by rank."""

    def __init__(self, world: int, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self._number = 0
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, job: str, *, timeout: float = 90, **arguments: Any) -> list[Any]:
        """`job` is "module:function".

        Raises: JobFailed when a rank raised; TimeoutError after `timeout` seconds, when some rank hangs.
        """
        deadline = time.monotonic() + timeout
        if self._process is None:
            self._start()
            deadline += START_SECONDS
        part = self.folder / f"{self._number}.part"
        part.write_bytes(pickle.dumps((job, arguments, timeout)))
        part.rename(self.folder / f"{self._number}.job")
        replies = [self._reply(rank, deadline) for rank in range(self.world)]
        self._number += 1
        errors = [error for _, error in replies]
        if any(errors):
            raise JobFailed(errors)
        return [result for result, _ in replies]

    def _start(self) -> None:
        self.folder.mkdir(parents=True)
        with (self.folder / "output.txt").open("wb") as output:
            self._process = subprocess.Popen(
                [*torchrun(self.world), "-m", "tests.ranks.server", str(self.folder)],
                cwd=ROOT,
                env=environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _reply(self, rank: int, deadline: float) -> tuple[Any, str | None]:
        path = self.folder / f"{self._number}.{rank}.result"
        while not path.exists():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                tail = (self.folder / "output.txt").read_text(errors="replace")[-8000:]
                self._number, self.folder = 0, self.folder.with_name(self.folder.name + "+")
                raise TimeoutError(f"rank {rank} gave no answer: it hangs or died\n{tail}")
            time.sleep(0.02)
        reply: tuple[Any, str | None] = pickle.loads(path.read_bytes())
        return reply

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None
