"""Two ranks that meet at every step; rank 0 saves to a store that takes two seconds more. What rank 1 sees.

out   for each way to save: the longest time between two steps of rank 1, idle and while the save is stored
"""

import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from benchmarks.checkpoint.state import Memcpy, State
from benchmarks.checkpoint.steps import Loop
from dflash_lightning.checkpoint.job import SaveJob
from dflash_lightning.checkpoint.publishing.publish import Published, publish
from dflash_lightning.checkpoint.snapshots.arenas import Arenas
from dflash_lightning.checkpoint.snapshots.freezing import plan_snapshot
from dflash_lightning.checkpoint.stores import StoreSettings, open_store
from dflash_lightning.checkpoint.stores.protocol import ObjectStore
from dflash_lightning.checkpoint.writing.attempt import Target, Write
from dflash_lightning.checkpoint.writing.writer import Writer

MODES = ("ours, process", "ours, thread", "on the training thread")
SLOW_S, IDLE_S = 2.0, 2.0
Done = Callable[[], bool]


def slow_publish(store: ObjectStore, prefix: str, job: SaveJob, write: Write) -> Published:
    def write_slowly(file: Any) -> None:
        write(file)
        time.sleep(SLOW_S)

    return publish(store, prefix, job, write_slowly)


def measure_ranks(num_bytes: int, rounds: int, tell: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Seconds, medians over the rounds of each round's longest gap."""
    with tempfile.TemporaryDirectory() as folder:
        tell("two ranks: starting")
        spawn(_rank, (folder, num_bytes, rounds), nprocs=2)  # type: ignore[no-untyped-call]
        gaps = json.loads((Path(folder) / "gaps.json").read_text())
        copy = json.loads((Path(folder) / "copy.json").read_text())
    return {
        mode: {
            "longest gap of rank 1 s": median(gaps[mode]["saving"]),
            "worst round s": max(gaps[mode]["saving"]),
            "longest gap idle s": median(gaps[mode]["idle"]),
            "memcpy s": copy,
        }
        for mode in MODES
    }


def _rank(rank: int, folder: str, num_bytes: int, rounds: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    loop, gaps = Loop(), {}
    state = State(num_bytes) if rank == 0 else None
    for mode in MODES:
        save, done, close = _saver(mode, state, Path(folder)) if state else (_nothing, _never, _nothing)
        dist.barrier()
        gaps[mode] = {"idle": [], "saving": []}
        for number in range(rounds + 1):  # the first one pays for imports
            idle = _longest_gap(loop, _nothing, _after(IDLE_S) if state else _never)
            saving = _longest_gap(loop, save, done)
            if number:
                gaps[mode]["idle"].append(idle)
                gaps[mode]["saving"].append(saving)
        close()
    if state is None:
        (Path(folder) / "gaps.json").write_text(json.dumps(gaps))
    else:
        (Path(folder) / "copy.json").write_text(json.dumps(_copy_seconds(Memcpy(state))))
    dist.destroy_process_group()


def _longest_gap(loop: Loop, before: Callable[[], None], done: Done) -> float:
    """Steps until rank 0 is done; the ranks meet behind each, as for the sums of a step."""
    longest, last, over = 0.0, time.perf_counter(), False
    before()
    while not over:
        loop.step()
        flag = torch.tensor([float(done())])
        dist.all_reduce(flag)
        now, over = time.perf_counter(), bool(flag > 0)
        longest, last = max(longest, now - last), now
    return longest


def _saver(mode: str, state: State, folder: Path) -> tuple[Callable[[], None], Done, Callable[[], None]]:
    """Of rank 0: save, is it stored, close."""
    target = Target(partial(open_store, str(folder / "store"), StoreSettings()), slow_publish)
    job = SaveJob(step=1, epoch=0, kind="step", run_id=mode.replace(" ", "-"))
    if mode == "on the training thread":

        def save_here() -> None:
            slow_publish(*target.open_store(), job, lambda file: torch.save(state.dump(1), file))

        return save_here, lambda: True, _nothing
    size = plan_snapshot(state.dump(1)).num_bytes
    writer = Writer(Arenas(None, size + size // 16, shared=mode == "ours, process"), target)

    def save() -> None:
        assert writer.submit(job, state.dump(1)).accepted

    def stored() -> bool:
        writer.poll()
        return not writer.unfinished

    return save, stored, writer.close


def _copy_seconds(memcpy: Memcpy) -> float:
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        memcpy()
        seconds.append(time.perf_counter() - begin)
    return median(seconds)


def _after(seconds: float) -> Done:
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() > end


def _nothing() -> None:
    pass


def _never() -> bool:
    return False
