"""An export takes the place of the one before whole, or not at all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dflash_lightning.export.write_files import write_folder

ROOM = 100_000
"""Bytes that a file may have in the child process."""
CHILD = f"""
import resource, sys
import torch
from pathlib import Path
from dflash_lightning.export.write_files import write_folder

resource.setrlimit(resource.RLIMIT_FSIZE, ({ROOM}, {ROOM}))
folder, numbers, letters = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
try:
    write_folder(folder, {{"a": torch.zeros(numbers)}}, {{"n": 2}}, {{"README.md": "x" * letters}})
except OSError as error:
    print(error)
"""


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_another_export_leaves_nothing_of_the_one_before(tmp_path):
    write_folder(tmp_path, {"a": torch.ones(1)}, {"n": 1}, {"dflash.py": "code", "README.md": "one"})
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    write_folder(tmp_path, {"b": torch.ones(2)}, {"n": 2}, {"README.md": "two"})
    assert contents(tmp_path).keys() == {"README.md", "config.json", "model.safetensors"}
    assert (tmp_path / "README.md").read_text() == "two"
    assert json.loads((tmp_path / "config.json").read_text()) == {"n": 2}
    assert load_file(tmp_path / "model.safetensors").keys() == {"b"}


@pytest.mark.parametrize(("numbers", "letters"), [(ROOM, 1), (1, 2 * ROOM)])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_full_disk_costs_nothing_that_was_there(tmp_path, numbers, letters, is_new):
    """Weights or card too large for it: the kernel refuses to write on, as it does on a full disk."""
    folder = tmp_path / "made" / "drafter"
    if not is_new:
        write_folder(folder, {"a": torch.ones(1)}, {"n": 1}, {"dflash.py": "code", "README.md": "one"})
        (folder / "model.safetensors.index.json").write_text("{}")
    before = None if is_new else contents(folder)
    command = [sys.executable, "-c", CHILD, str(folder), str(numbers), str(letters)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert f"{folder} cannot be written (" in done.stdout
    assert "File too large" in done.stdout
    assert "make room there or give another --output; what it held before is untouched" in done.stdout
    if is_new:
        assert list(tmp_path.iterdir()) == []  # nor is a new folder left behind
    else:
        assert contents(folder) == before


def test_a_state_that_cannot_be_written_costs_nothing_either(tmp_path):
    write_folder(tmp_path, {"a": torch.ones(1)}, {"n": 1}, {})
    before = contents(tmp_path)
    shared = torch.ones(4)
    with pytest.raises(RuntimeError, match="share memory"):
        write_folder(tmp_path, {"a": shared, "b": shared}, {"n": 2}, {})
    assert contents(tmp_path) == before
