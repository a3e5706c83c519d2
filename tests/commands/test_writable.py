"""Every command that writes asks for its place before all else: the inputs here are missing."""

import contextlib
import os
import tempfile
from pathlib import Path

import pytest

from dflash_lightning.commands.writable import require_file, require_folder, require_picture
from dflash_lightning.main import main

NOBODY = 65534
EVALUATE = ["evaluate", "--target", "gone", "--drafter", "gone", "--prompts", "gone"]
SERVER = ["evaluate", "--server", "http://127.0.0.1:9", "--prompts", "gone"]
PLAN = ["plan", "--lengths", "gone.npy"]
REPORT = ["report", "gone/run"]
REGENERATE = ["regenerate", "--input", "gone", "--target", "gone", "--overwrite"]
ASKING = ["regenerate", "--input", "gone", "--server", "http://127.0.0.1:9"]
PREPARE = ["prepare", "--input", "gone", "--target", "gone", "--overwrite"]
STATES = ["prepare", "--hidden-states", "--target", "gone", "--store", "gone", "--taps", "1"]
EXPORT = ["export", "--checkpoint", "gone"]

FILES = [
    *((words, "--json", "x.json") for words in (EVALUATE, SERVER)),
    *((words, "--plot", "x.png") for words in (EVALUATE, PLAN, [*PLAN, "--compare", "credit,shuffle"])),
    (REPORT, "--output", "x.html"),
    *((words, "--output", "x.jsonl") for words in (REGENERATE, ASKING)),
]
MAKE_FOLDERS = ("report", "regenerate")
FOLDERS = [
    *((words, "--output", "x") for words in (PREPARE, STATES, EXPORT)),
    ([*REPORT, "--text"], "--png", "x"),
]


def refused(words, capsys):
    """What the command says."""
    assert main([str(word) for word in words]) == 1
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert shown.out == ""
    return shown.err


@pytest.fixture
def place():
    """A folder that everybody may look into: pytest's own are their owner's alone."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextlib.contextmanager
def without_rights():
    """Modes of folders and files count, whoever runs the tests."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.fixture
def closed(place):
    folder = place / "closed"
    folder.mkdir()
    folder.chmod(0o555)
    return folder


@pytest.mark.parametrize(("words", "option", "name"), FILES)
def test_a_file_is_asked_for_before_the_work(words, option, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("taken", name).mkdir(parents=True)
    if words[0] != "report":  # which writes into a folder that it is given
        said = refused([*words, option, f"taken/{name}"], capsys)
        assert f"{option} taken/{name} is a folder, and a file has to be there: choose another name" in said
    said = refused([*words, option, f"file/{name}"], capsys)
    assert f"{option} file/{name}: {tmp_path}/file is a file, and a folder has to be there" in said
    if words[0] not in MAKE_FOLDERS:
        said = refused([*words, option, f"no/such/{name}"], capsys)
        assert f"{option} no/such/{name}: there is no folder {tmp_path}/no/such: make it, or" in said
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(["file", "taken", name])


@pytest.mark.parametrize(("words", "option", "name"), FOLDERS)
def test_a_folder_is_asked_for_before_the_work(words, option, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert "file is a file, and a" in refused([*words, option, "file"], capsys)
    said = refused([*words, option, f"file/{name}"], capsys)
    assert f"{option} file/{name}: {tmp_path}/file is a file, and a folder has to be there" in said
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize(("words", "option", "name"), [*FILES, *FOLDERS])
def test_permission_is_asked_for_before_the_work(words, option, name, closed, capsys):
    with without_rights():
        said = refused([*words, option, closed / name], capsys)
    assert f"{option} {closed}/{name}: you may not write there: choose another place" in said


@pytest.mark.parametrize("suffix", ["", ".gif", ".json"])
@pytest.mark.parametrize("words", [EVALUATE, PLAN])
def test_a_picture_has_a_format(words, suffix, tmp_path, capsys):
    said = refused([*words, "--plot", tmp_path / f"x{suffix}"], capsys)
    assert f"--plot {tmp_path}/x{suffix}: name a file that ends in .png, .pdf, .svg" in said


def test_the_file_beside_the_output_is_asked_for_too(tmp_path, capsys):
    (tmp_path / "x.jsonl.status").mkdir()
    said = refused([*REGENERATE, "--output", tmp_path / "x.jsonl"], capsys)
    assert f"{tmp_path}/x.jsonl.status, beside --output {tmp_path}/x.jsonl, is a folder, and a file" in said


def test_the_place_that_nobody_named_is_asked_for_too(closed, capsys):
    with without_rights():
        said = refused(["report", closed / "run.jsonl"], capsys)
    assert f"{closed}/report.html, where the page goes without --output: you may not write there" in said


def test_what_may_be_written_is_let_through_and_left_as_it_is(tmp_path):
    (tmp_path / "there.png").write_text("before")
    (tmp_path / "link.png").symlink_to(tmp_path / "not yet.png")
    for name in ("new.png", "there.png", "link.png"):
        require_picture("--plot", tmp_path / name)
    require_file("--output", tmp_path / "a" / "b" / "new", makes_folders=True)
    for folder in (tmp_path, tmp_path / "a" / "b"):
        require_folder("--output", folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.png", "there.png"]
    assert (tmp_path / "there.png").read_text() == "before"


def test_a_file_that_is_replaced_needs_its_folder_and_one_that_is_overwritten_itself(place, closed):
    open_file, closed_file = closed / "open", place / "file"
    for path, mode in ((open_file, 0o666), (closed_file, 0o444)):
        path.touch()
        path.chmod(mode)
    place.chmod(0o777)
    with without_rights():
        require_file("--json", open_file)
        require_file("--output", closed_file, replaces=True)
        with pytest.raises(PermissionError, match="--json: you may not write there: choose another place"):
            require_file("--json", closed_file)
        with pytest.raises(PermissionError, match="--output: you may not write there"):
            require_file("--output", open_file, replaces=True)
        require_folder("--output", closed, replaces=True)
        with pytest.raises(PermissionError, match="--output: you may not write there"):
            require_folder("--output", closed)
