"""The first word decides; what is unknown is named."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_lightning.main import COMMANDS, TRAINER_COMMANDS, main

ROOT = Path(__file__).parents[1]


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)
    assert main([]) == 0


def test_an_unknown_command_is_named(capsys):
    assert main(["fitt"]) == 2
    told = f"unknown command 'fitt'; did you mean fit? There are: {', '.join(COMMANDS)}"
    assert told in capsys.readouterr().err
    assert main(["xyz"]) == 2
    assert "unknown command 'xyz'. There are: " in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in TRAINER_COMMANDS])
def test_each_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as leaving:
        main([name, "--help"])
    assert leaving.value.code == 0
    assert f"{name}" in capsys.readouterr().out


def test_a_python_without_the_projects_packages_is_told_what_to_do():
    """-S leaves out site-packages, as a system's Python has none of ours."""
    words = [sys.executable, "-S", str(ROOT / "cli.py"), "fit", "--help"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.search(
        r"^cli.py: \S+ has no package \w+\. Use .venv/bin/python, which `make install`", done.stderr
    )
    assert "Traceback" not in done.stderr
