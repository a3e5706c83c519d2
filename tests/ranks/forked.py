"""`cli.py fit` on ranks that are forked from a process which has imported everything: a start costs a second.

in    a config, an environment, how many ranks
out   real processes, each with a group of its own; what they print in a file; their exit codes
law   nothing that a test started survives its `with`, uploaders that outlive a killed trainer included
"""

import atexit
import io
import itertools
import json
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import yaml

from tests.ports import free_port
from tests.ranks.pool import ROOT

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.ranks.warm"])
PATIENCE = 600
"""Seconds for anything a run should do soon, on a machine that may be busy."""
_numbers = itertools.count()
_LOADING = re.compile(r"loading \S+/(step=(\d+)-[0-9a-f]{8})")


def _rank(words: Sequence[str], environment: Mapping[str, str], output: str, debug: bool) -> None:
    """What a rank runs: cli.py's own main, under the environment that torchrun would give it."""
    os.setpgid(0, 0)
    os.chdir(ROOT)
    os.environ.update(environment)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    if debug:
        logging.basicConfig(level=logging.DEBUG)
        logging.getLogger("botocore").setLevel(logging.DEBUG)
    from dflash_lightning.main import main

    try:
        code = main(words)
    finally:
        atexit._run_exitfuncs()  # as an interpreter of its own would: loggers close their files there
    sys.exit(code)


@dataclass
class ForkedFit:
    """One run, used as a context. `values` is its config; `words` follow on the command line."""

    folder: Path
    values: dict[str, Any]
    environment: dict[str, str]
    words: tuple[str, ...] = ()
    world: int = 2
    debug: bool = False
    """Everything that is ever logged goes to the output."""
    ranks: list[ForkServerProcess] = field(default_factory=list)
    number: int = field(default_factory=lambda: next(_numbers))
    _seen: dict[int, str] = field(default_factory=dict)
    """Processes that ranks started, uploaders and workers of a DataLoader, with their commands."""
    _read: dict[int, tuple[int, list[dict[str, Any]]]] = field(default_factory=dict)
    """How far the file of a rank is read, and what was there."""

    def __enter__(self) -> "ForkedFit":
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "run.yaml"
        config.write_text(yaml.safe_dump(self.values))
        several = [f"--trainer.devices={self.world}", "--trainer.strategy=ddp"] if self.world > 1 else []
        words = ["fit", f"--config={config}", *several, *self.words]
        port = str(free_port())
        for rank in range(self.world):
            path = self._watched(rank)
            if path.exists():  # a kill may have cut the last line
                path.write_text(path.read_text()[: path.read_text().rfind("\n") + 1])
            self._read[rank] = (path.stat().st_size if path.exists() else 0), []
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self.world, "GROUP_RANK": 0}
            place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
            environment = self.environment | {name: str(value) for name, value in place.items()}
            if self.world == 1:
                environment = self.environment
            arguments = (words, environment, str(self._output(rank)), self.debug)
            self.ranks.append(_CONTEXT.Process(target=_rank, args=arguments))
            self.ranks[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._look()
        for rank in self.ranks:
            if rank.is_alive():
                rank.kill()
            rank.join()
        for pid, command in self._seen.items():
            if command_of(pid) == command:
                _end(pid, signal.SIGKILL)

    @property
    def uploaders(self) -> set[int]:
        """Process ids of the uploaders that live, of dead ranks too where they were seen before."""
        self._look()
        alive = (pid for pid, command in self._seen.items() if command_of(pid) == command)
        return {pid for pid in alive if "writing.uploader" in self._seen[pid]}

    def _look(self) -> None:
        for rank in self.ranks:
            self._seen |= {pid: command_of(pid) for pid in children_of(rank.pid)}

    def kill(self, *which: int, uploaders: bool = False) -> None:
        """SIGKILL these ranks at once; with `uploaders` their uploaders as well, as by the end of a pod."""
        found = self.uploaders
        for rank in which or range(self.world):
            _end(self.ranks[rank].pid, signal.SIGKILL)
        for pid in found if uploaders else ():
            _end(pid, signal.SIGKILL)

    def kill_uploaders(self) -> None:
        for pid in self.uploaders:
            _end(pid, signal.SIGKILL)

    def signal(self, rank: int, number: int) -> None:
        _end(self.ranks[rank].pid, number)

    def finish(self, patience: float = PATIENCE) -> list[int | None]:
        """The exit codes by rank; a hang fails the test."""
        deadline = time.monotonic() + patience
        for rank in self.ranks:
            rank.join(max(0.0, deadline - time.monotonic()))
        assert not any(rank.is_alive() for rank in self.ranks), f"the run hangs\n{self.output[-6000:]}"
        return [rank.exitcode for rank in self.ranks]

    def wait_for_uploaders(self) -> None:
        """Until those that outlive their trainer have stored what they hold."""
        self.wait_until(lambda: not self.uploaders, "the end of the uploaders", alive=False)

    def wait_until(self, reached: Any, what: str, *, alive: bool = True) -> None:
        deadline = time.monotonic() + PATIENCE
        while not reached():
            ended = alive and not any(rank.is_alive() for rank in self.ranks)
            assert not ended, f"the run ended before {what}\n{self.output[-6000:]}"
            assert time.monotonic() < deadline, f"no {what}\n{self.output[-6000:]}"
            time.sleep(0.05)

    @property
    def output(self) -> str:
        files = map(self._output, range(self.world))
        return "\n".join(path.read_text(errors="replace") for path in files if path.exists())

    def _output(self, rank: int) -> Path:
        return self.folder / f"output-{self.number}-{rank}.txt"

    @property
    def loaded(self) -> tuple[str, int] | None:
        """Name and step of the checkpoint that this run began with."""
        found = _LOADING.search(self.output)
        return (found[1], int(found[2])) if found else None

    def events(self, rank: int = 0) -> list[dict[str, Any]]:
        """What `Watched` wrote in this process; runs of one folder share the file."""
        path, (offset, events) = self._watched(rank), self._read[rank]
        with path.open("rb") if path.exists() else io.BytesIO() as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"}\n"):
                    break  # it is being written
                offset += len(line)
                events.append(json.loads(line))
        self._read[rank] = offset, events
        return events

    def _watched(self, rank: int) -> Path:
        return self.folder / "watch" / f"rank{rank}.jsonl"

    def steps(self, rank: int = 0) -> int:
        """Optimizer steps behind this rank, as far as it said; -1 before its first micro-batch."""
        return max((event["steps"] for event in self.events(rank)), default=-1)

    def wait_for_step(self, step: int) -> None:
        self.wait_until(lambda: self.steps() >= step, f"step {step}")


def _end(pid: int | None, number: int) -> None:
    assert pid is not None  # it was started
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def children_of(pid: int | None) -> list[int]:
    try:
        tasks = [*Path(f"/proc/{pid}/task").iterdir()]
        return [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        return []


def command_of(pid: int) -> str:
    """Empty for a process that is gone, or dead and not yet waited for."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
