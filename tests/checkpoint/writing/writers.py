"""What the writer's tests share: jobs, a small state, and publishers that can be held up."""

import io
import threading
import time
from functools import partial
from pathlib import Path

import torch

from dflash_lightning.checkpoint.job import Retention, SaveJob
from dflash_lightning.checkpoint.publishing.publish import publish
from dflash_lightning.checkpoint.snapshots.arenas import Arenas
from dflash_lightning.checkpoint.stores import StoreSettings, open_store
from dflash_lightning.checkpoint.stores.faults import FaultyStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore
from dflash_lightning.checkpoint.writing.attempt import Target
from dflash_lightning.checkpoint.writing.writer import Writer

CAPACITY = 1 << 16
PATIENCE_S = 240.0


def job(step, kind="step", *, must_keep=False, keep_last=-1):
    return SaveJob(
        step=step,
        epoch=0,
        kind=kind,
        run_id="run",
        must_keep=must_keep,
        retention=Retention(keep_last=keep_last),
    )


def state_at(step):
    return {"step": step, "weight": torch.full((1000,), float(step))}


def held_publish(hold, store, prefix, job, write):
    """Publish, but keep the upload open after its last byte while the file `hold` is there."""

    def write_and_wait(file):
        write(file)
        while Path(hold).exists():
            time.sleep(0.01)

    return publish(store, prefix, job, write_and_wait)


def folder_target(folder, hold=None):
    """A target that an uploader process can be given."""
    opener = partial(open_store, str(folder), StoreSettings())
    return Target(opener, publish if hold is None else partial(held_publish, str(hold)))


def stored_steps(folder):
    """Steps of the complete checkpoints below a folder, each loaded and checked."""
    steps = []
    for path in sorted(Path(folder).glob("data/*.ckpt")):
        state = torch.load(io.BytesIO(path.read_bytes()), weights_only=True)
        assert torch.equal(state["weight"], torch.full((1000,), float(state["step"])))
        assert list(Path(folder).glob(f"manifests/*{path.stem.rpartition('-')[2]}.json"))
        steps.append(state["step"])
    return sorted(steps)


def make_writer(target, *, shared=False, count=3, capacity=CAPACITY, **options):
    return Writer(Arenas(count, capacity, shared=shared), target, **options)


def until(condition, *, within_s=PATIENCE_S):
    """Wait for something that another process or thread does. Returns what the condition gave."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
    return found


def events_until(writer, kind):
    """Poll until an event of this kind; all events so far."""
    events = []

    def come():
        events.extend(writer.poll())
        return any(isinstance(event, kind) for event in events)

    until(come, within_s=PATIENCE_S)
    return events


class Gate:
    """A publisher that tells when it has begun, and ends only when it may."""

    def __init__(self):
        self.begun, self.open = threading.Event(), threading.Event()
        self.steps = []

    def publish(self, store, prefix, job, write):
        self.begun.set()
        self.open.wait()
        self.steps.append(job.step)
        return publish(store, prefix, job, write)


def begin(writer, gate, first):
    """Hold the worker up inside the first save."""
    assert writer.submit(first, state_at(first.step)).accepted
    gate.begun.wait()
    writer.poll()


def kinds(events):
    return [(type(event).__name__, event.job.step) for event in events]


def faulty(*faults):
    store = FaultyStore(MemoryStore(), *faults)
    return make_writer(Target(lambda: (store, "ck"), publish))


TRAINER = """
import os, sys, time
from tests.checkpoint.writing.writers import folder_target, job, make_writer, state_at
folder, hold, processes, step = sys.argv[1:]
writer = make_writer(folder_target(folder, hold), shared=processes == "process")
assert writer.submit(job(int(step)), state_at(int(step))).accepted
"""


def pending_files(folder):
    return list(Path(folder).glob("data/.*.pending"))


def gone(pid):
    """True for a process that has ended, also where nobody has asked for its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
