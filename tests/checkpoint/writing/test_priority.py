"""How far the uploader steps back, on every system that it may find itself on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_lightning.checkpoint.writing.priority import group_nice


@pytest.mark.parametrize(
    ("autogroup", "nice"),
    [
        ("/autogroup-25 nice 5\n", 5),
        ("/autogroup-1 nice 0\n", 0),
        ("/autogroup-7 nice -20\n", -20),
        ("/autogroup-7 nice 19", 19),
        ("", 0),  # in no group of its own: the first process of a container, and what it starts
        ("\n", 0),
        ("/autogroup-7 nice\n", 0),
        ("something else\n", 0),
    ],
)
def test_niceness_of_the_trainers_group(autogroup, nice):
    assert group_nice(autogroup) == nice


STEP_BACK = """
import os, sys
from pathlib import Path
from dflash_lightning.checkpoint.writing import priority
read, write = Path.read_text, Path.write_text
trainer, refused = int(sys.argv[1]), sys.argv[2]

def refuse(name, call):
    def instead(path, *given, **more):
        if str(path).endswith("autogroup") and refused == name:
            raise PermissionError(1, "refused")
        return call(path, *given, **more)
    return instead

Path.read_text, Path.write_text = refuse("read", read), refuse("write", write)
priority.step_back(trainer)
print(os.getpriority(os.PRIO_PROCESS, 0))
"""


@pytest.mark.parametrize("refused", ["nothing", "read", "write"])
@pytest.mark.parametrize("trainer", ["the first process", "this one", "none"])
def test_nothing_that_the_system_says_ends_the_uploader(trainer, refused):
    number = {"the first process": 1, "this one": os.getpid(), "none": 2**22 + 1}[trainer]
    ended = subprocess.run(
        [sys.executable, "-c", STEP_BACK, str(number), refused],
        capture_output=True,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[3],
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) >= min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
