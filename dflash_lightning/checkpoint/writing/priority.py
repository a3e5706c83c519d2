"""The uploader steps back behind training: a lower priority, once it is ready to work.

law   not before: at that priority its imports took a minute beside a training that uses every core, and no
      checkpoint became durable for so long
"""

import os
import time
from contextlib import suppress
from pathlib import Path

NICE, ATTEMPTS = 10, 5


def step_back(trainer: int) -> None:
    """Niceness counts within a session only where Linux groups by session (autogroup), and this process has
    one of its own: there the whole group steps back, from where that of the trainer stands."""
    os.nice(NICE)
    with suppress(OSError, ValueError):
        theirs = int(Path(f"/proc/{trainer}/autogroup").read_text().split()[-1])
        _set_group(min(19, theirs + NICE))


def _set_group(nice: int) -> None:
    for _ in range(ATTEMPTS):
        with suppress(BlockingIOError):  # Linux lets all users together do this ten times a second
            Path("/proc/self/autogroup").write_text(str(nice))
            return
        time.sleep(0.1)
