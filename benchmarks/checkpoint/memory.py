"""What a process holds, as Linux counts it.

law   memory that two processes share counts once
"""

from pathlib import Path


def reset_peak() -> None:
    """From here on `peak_bytes` forgets what was before."""
    Path("/proc/self/clear_refs").write_text("5")


def resident_bytes() -> int:
    return _field(Path("/proc/self/status"), "VmRSS")


def peak_bytes() -> int:
    """Largest `resident_bytes` since `reset_peak`; shared memory included."""
    return _field(Path("/proc/self/status"), "VmHWM")


def own_bytes(pid: int) -> int:
    """What a process holds for itself: its proportional share, without the arenas it maps."""
    rollup = Path(f"/proc/{pid}/smaps_rollup")
    try:
        return _field(rollup, "Pss") - _field(rollup, "Pss_Shmem")
    except OSError:  # it ended
        return 0


def _field(path: Path, name: str) -> int:
    lines = path.read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
