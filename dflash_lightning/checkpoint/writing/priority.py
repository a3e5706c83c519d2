"""The uploader steps back behind training: a lower priority, once it is ready to work.

law   not before: at that priority its imports took a minute beside a training that uses every core, and no
      checkpoint became durable for so long
law   a courtesy: whatever the system refuses or words otherwise, the uploader works on
"""

import os
import re
import time
from contextlib import suppress
from pathlib import Path

NICE, ATTEMPTS = 10, 5


def step_back(trainer: int) -> None:
    """Niceness counts within a session only where Linux groups by session (autogroup), and this process has
    one of its own: there the whole group steps back, from where that of the trainer stands."""
    with suppress(OSError):
        os.nice(NICE)
    with suppress(OSError):
        theirs = group_nice(Path(f"/proc/{trainer}/autogroup").read_text(errors="replace"))
        _set_group(min(19, theirs + NICE))


def group_nice(autogroup: str) -> int:
    """Of a process's `autogroup` file: "/autogroup-25 nice 5". It is empty for a process in no group of its
    own, such as the first of a container, which is as good as niceness 0."""
    found = re.search(r"nice\s+(-?\d+)\s*$", autogroup)
    return int(found[1]) if found else 0


def _set_group(nice: int) -> None:
    for _ in range(ATTEMPTS):
        with suppress(BlockingIOError):  # Linux lets all users together do this ten times a second
            Path("/proc/self/autogroup").write_text(str(nice))
            return
        time.sleep(0.1)
