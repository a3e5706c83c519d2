import os
import shutil

import pytest

from dflash_lightning.commands.report import parse_steps
from dflash_lightning.main import main
from tests.report.drawn_runs import write_full_run, write_small_run


@pytest.fixture
def small(tmp_path):
    return write_small_run(tmp_path / "small")


def test_a_page_lands_beside_the_run(small, capsys):
    assert main(["report", str(small)]) == 0
    page = (small / "report.html").read_text()
    assert "<h1>small</h1>" in page
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("small: unknown. ")
    assert printed[-1] == str(small / "report.html")


def test_output_and_png_go_where_they_are_told(small, tmp_path):
    page, pictures = tmp_path / "new" / "page.html", tmp_path / "png"
    assert main(["report", str(small), "--output", str(page), "--png", str(pictures)]) == 0
    assert page.is_file()
    assert [path.name for path in pictures.iterdir()] == ["loss.png"]
    assert not (small / "report.html").exists()
    assert main(["report", str(small), "--output", str(pictures)]) == 0
    assert (pictures / "report.html").is_file()


def test_text_prints_bars_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    folder = write_full_run(tmp_path / "full", num_rows=60)
    assert main(["report", str(folder), "--text"]) == 0
    printed = capsys.readouterr().out
    assert "full" in printed.splitlines()[0]
    assert "validation tau, best" in printed
    assert "█" in printed
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) <= 70
    assert not (folder / "report.html").exists()


def test_steps_narrow_the_text_to_one_bar_per_logged_step(tmp_path, capsys):
    folder = write_full_run(tmp_path / "full", num_rows=60)
    assert main(["report", str(folder), "--text", "--steps", "300:400"]) == 0
    bars = capsys.readouterr().out.split("bars from")[1].splitlines()[1:]
    assert [line.split()[0] for line in bars if line] == [str(step) for step in range(300, 401, 10)]


def test_two_runs_are_compared_and_told_apart_if_of_one_name(tmp_path, capsys):
    folders = [write_small_run(tmp_path / place / "run") for place in ("a", "b")]
    page = tmp_path / "ab.html"
    assert main(["report", *map(str, folders), "--output", str(page)]) == 0
    assert f"run / {folders[1]}" in page.read_text()
    assert "<table>" in page.read_text()
    assert capsys.readouterr().out.count("unknown. ") == 2


def test_a_log_of_another_trainer(tmp_path, capsys):
    log = tmp_path / "other.jsonl"
    log.write_text("".join(f'{{"step": {i}, "loss": {4 / i}}}\n' for i in range(1, 30)))
    assert main(["report", str(log), "--text"]) == 0
    assert "bars from" in capsys.readouterr().out
    assert main(["report", str(log)]) == 0
    assert (tmp_path / "report.html").is_file()


def test_a_folder_whose_name_is_no_text(small, tmp_path, capfdbinary):
    folder = tmp_path / os.fsdecode(b"run \xff\xfe")
    shutil.copytree(small, folder)
    assert main(["report", str(folder)]) == 0
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no/such/run"], "no/such/run"),
        (["{small}", "--steps", "12"], "--steps takes FIRST:LAST, like 3600:4200, 3600: or :4200, got '12'"),
        (["{small}", "--steps", "9:3"], "--steps 9:3 ends before it begins"),
        (["{small}", "{small}"], "small is given twice"),
    ],
)
def test_a_mistake_is_one_message(small, capsys, arguments, message):
    assert main(["report", *(argument.format(small=small) for argument in arguments)]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("report: ")
    assert message in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("text", "steps"), [("3600:4200", (3600, 4200)), (":4_200", (0, 4200)), ("3,600:", (3600, 2**53))]
)
def test_steps_have_two_ends_of_which_one_may_be_open(text, steps):
    assert parse_steps(text) == steps


def test_help_teaches(capsys):
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    printed = capsys.readouterr().out
    assert "python cli.py report runs/demo --steps 3600:4200 --text" in printed
    assert 'one object a line with "step", "loss"' in printed
