import os
import subprocess
import sys
import time

import pytest

from dflash_lightning.data.pool import ordered_map


@pytest.mark.ranks
def test_results_come_in_the_order_of_the_work():
    work = [0.2, 0.0, 0.1, 0.0, 0.05]
    assert list(ordered_map(time.sleep, work, workers=3)) == [None] * 5
    assert list(ordered_map(abs, range(-30, 0), workers=2)) == [abs(n) for n in range(-30, 0)]


@pytest.mark.ranks
def test_work_is_taken_only_as_fast_as_results_are():
    taken = []
    results = ordered_map(abs, (taken.append(n) or n for n in range(1000)), workers=2)
    next(results)
    assert len(taken) <= 5  # two a worker, and one for the result that was given out
    results.close()


@pytest.mark.ranks
def test_an_error_in_a_worker_arrives_here():
    with pytest.raises(ValueError, match="invalid literal for int"):
        list(ordered_map(int, ["1", "x", "2"], workers=2))


def test_one_worker_is_this_process():
    assert list(ordered_map(lambda _: os.getpid(), range(2), workers=1)) == [os.getpid()] * 2


@pytest.mark.ranks
def test_workers_end_with_a_killed_parent():
    code = (
        "import os, signal\n"
        "from multiprocessing import active_children\n"
        "from dflash_lightning.data.pool import ordered_map\n"
        "if __name__ == '__main__':\n"
        "    results = ordered_map(abs, range(100), workers=2)\n"
        "    next(results)\n"
        "    print(*(child.pid for child in active_children()), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 20
    while alive := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < deadline, f"workers {alive} outlived their parent"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:  # a zombie that nobody collects has ended too
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return os.path.exists("/proc") is False  # noqa: PTH110
