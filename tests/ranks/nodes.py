"""One `torchrun` for each node, all on this machine: what an operator types on every machine of a cluster."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from tests.ports import free_port
from tests.ranks.pool import ROOT, environment
from tests.ranks.runs import PATIENCE, Fit, toy_config


class Nodes(Fit):
    """`cli.py fit` on `nodes` nodes of `devices` ranks each; node 0 has the first ranks.

    `words_of[n]` are added to the command line of node n, `variables[n]` to its environment.
    """

    def __init__(
        self,
        folder: Path,
        target: str | Path,
        store: str | Path,
        *,
        nodes: int = 2,
        devices: int = 1,
        delay: float = 0.0,
        resume: Path | None = None,
        words: dict[int, list[str]] | None = None,
        variables: dict[int, dict[str, str]] | None = None,
        trainer: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(folder, "torchrun", Path(target), Path(store), resume=resume, delay=delay)
        self.shape = nodes, devices
        self.words_of = words or {}
        self.variables = variables or {}
        self.trainer = trainer or {}
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Nodes":
        self.folder.mkdir(parents=True)
        nodes, devices = self.shape
        values = toy_config(self.folder, self.target, self.store, delay=self.delay)
        values["trainer"] |= {"num_nodes": nodes, "devices": devices, "strategy": "ddp", **self.trainer}
        config = self.folder / "toy.yaml"
        config.write_text(yaml.safe_dump(values))
        resume = [f"--ckpt_path={self.resume}"] if self.resume else []
        port = free_port()
        for node in range(nodes):
            start = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}"]
            start += [f"--node-rank={node}", f"--nproc-per-node={devices}"]
            start += ["--master-addr=127.0.0.1", f"--master-port={port}"]
            command = [*start, "cli.py", "fit", f"--config={config}", *resume, *self.words_of.get(node, [])]
            with (self.folder / f"node{node}.txt").open("wb") as output:
                self.processes.append(
                    subprocess.Popen(
                        command,
                        cwd=ROOT,
                        env=environment() | self.variables.get(node, {}),
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        self.process = self.processes[0]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def output_of(self, node: int) -> str:
        return (self.folder / f"node{node}.txt").read_text(errors="replace")

    @property
    def output(self) -> str:
        return "\n".join(f"--- node {n}\n{self.output_of(n)[-6000:]}" for n in range(self.shape[0]))

    def finish_all(self, seconds: float = PATIENCE) -> list[int]:
        """The exit codes of the nodes' commands; a node that goes on after the others fails the test."""
        deadline = time.monotonic() + seconds
        try:
            return [process.wait(max(0.1, deadline - time.monotonic())) for process in self.processes]
        except subprocess.TimeoutExpired:
            raise AssertionError(f"a node hangs\n{self.output}") from None
