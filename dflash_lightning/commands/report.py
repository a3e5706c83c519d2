"""`python cli.py report`: a run's logs -> verdicts in words, a page of figures, bars in the terminal."""

import io
import re
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace

from dflash_lightning.commands.teaching_help import TeachingHelp
from dflash_lightning.commands.writable import require_file, require_folder
from dflash_lightning.short_errors import ShortErrors

if TYPE_CHECKING:  # imported when the work starts: `--help` must not wait for matplotlib
    from dflash_lightning.report.run import Run
    from dflash_lightning.report.verdict import Verdict

    Judged = dict[str, tuple[Run, list[Verdict]]]

DESCRIPTION = """\
Say what a run's logs show: is the movement of the loss the mix of sequence lengths, an instability, a
checkpoint, the way it was logged? Then which steps to look at, the run's key figures, and every figure that
its logs allow, on one HTML page that needs no network.

RUN_DIR is one of
  a folder of `fit`             its CSV logs, skipped steps and micro-batches, also after a crash
  a W&B offline folder          wandb/offline-run-...
  a JSON Lines file             of any trainer, one object a line with "step", "loss" and, where there,
                                "seq_len" and "time"

Examples:
  python cli.py report runs/demo                             writes runs/demo/report.html
  python cli.py report runs/demo --text                      in the terminal, no file
  python cli.py report runs/demo --steps 3600:4200 --text    one bar for each logged step between
  python cli.py report runs/a runs/b --output ab.html        side by side: one table, curves overlaid
  python cli.py report runs/demo --png figures               each figure as PNG too
"""
OUTPUT = "the page, or a folder for it; default: report.html in the run's folder, of several runs in this one"
STEPS = "only these optimizer steps, both included; 3600: and :4200 leave one end open"
TEXT = "print verdicts and bars here; a page is then written only if --output names one"
END_OF_TIME = 2**53


def main(args: Sequence[str] | None = None) -> int:
    """Exit code: 0, or 1 with one message on standard error when the logs cannot be used."""
    options = make_parser().parse_args(args)
    for stream in (sys.stdout, sys.stderr):  # a name may hold what the terminal cannot show
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        _report(options)
    except (ValueError, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    return 0


def make_parser() -> ArgumentParser:
    parser = ShortErrors(prog="python cli.py report", description=DESCRIPTION, formatter_class=TeachingHelp)
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN_DIR", help="folder or file with a run's logs; several to compare")
    add("--output", metavar="FILE", help=OUTPUT)
    add("--png", metavar="DIR", help="folder for one PNG per figure")
    add("--steps", metavar="FIRST:LAST", help=STEPS)
    add("--text", action="store_true", help=TEXT)
    add("--open", action="store_true", help="show the page in the browser")
    return parser


def parse_steps(text: str) -> tuple[int, int]:
    """ "3600:4200" -> (3600, 4200); an end left out is open."""
    found = re.fullmatch(r"(\d{0,15}):(\d{0,15})", text.replace("_", "").replace(",", ""))
    if found is None or text == ":":
        raise ValueError(f"--steps takes FIRST:LAST, like 3600:4200, 3600: or :4200, got {text!r}")
    first, last = int(found[1] or 0), int(found[2] or END_OF_TIME)
    if first > last:
        raise ValueError(f"--steps {text} ends before it begins")
    return first, last


def _report(options: Namespace) -> None:
    steps = None if options.steps is None else parse_steps(options.steps)
    path = None if options.text and options.output is None else _page_path(options)
    if options.png is not None:
        require_folder(f"--png {options.png}", options.png)
    judged = _read(options.runs, steps)
    if options.text:
        _print(judged, every_step=steps is not None)
    if options.png is not None:
        _write_pngs(judged, Path(options.png))
    if path is None:
        return
    _write_page(judged, path)
    if not options.text:
        from dflash_lightning.report.facts import headline

        for name, (_, verdicts) in judged.items():
            print(f"{name}: {verdicts[0].kind}. {headline(verdicts[0])}")
    print(path)
    if options.open:
        webbrowser.open(path.resolve().as_uri())


def _read(paths: Sequence[str], steps: tuple[int, int] | None) -> "Judged":
    from dflash_lightning.report.read import read_run
    from dflash_lightning.report.verdict import judge_run

    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is given twice")
    judged: Judged = {}
    for path in paths:
        with _progress(f"reading {path}"):
            run = read_run(Path(path), steps=steps)
            judged[path if run.name in judged else run.name] = run, judge_run(run)
    return judged


def _write_page(judged: "Judged", path: Path) -> None:
    from dflash_lightning.report.page import compare_page, run_page

    with _progress("drawing"):
        if len(judged) == 1:
            ((run, verdicts),) = judged.values()
            page = run_page(run, verdicts)
        else:
            runs = {name: run for name, (run, _) in judged.items()}
            page = compare_page(runs, {name: verdicts for name, (_, verdicts) in judged.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8", errors="replace")  # names of files may be no text


def _write_pngs(judged: "Judged", folder: Path) -> None:
    from dflash_lightning.report.figures.catalogue import figures_of
    from dflash_lightning.report.figures.overlay import overlays
    from dflash_lightning.report.figures.sheet import HALF, WIDE, draw_png
    from dflash_lightning.report.page import marked

    if len(judged) == 1:
        ((run, verdicts),) = judged.values()
        figures = figures_of(run, marks=marked(verdicts))
    else:
        figures = overlays({name: run for name, (run, _) in judged.items()})
    folder.mkdir(parents=True, exist_ok=True)
    with _progress("drawing"):
        for figure in figures:
            (folder / f"{figure.name}.png").write_bytes(draw_png(figure, WIDE if figure.wide else HALF))
    print(f"{len(figures)} figures in {folder}")


def _print(judged: "Judged", *, every_step: bool) -> None:
    from rich.console import Console

    from dflash_lightning.report.terminal import describe

    console = Console(highlight=False)
    ascii_only = console.options.ascii_only
    for run, verdicts in judged.values():
        text = describe(run, verdicts, width=console.width, ascii_only=ascii_only, every_step=every_step)
        console.print(text, soft_wrap=False)


def _page_path(options: Namespace) -> Path:
    """Raises OSError where it cannot be written."""
    path = Path(options.output) if options.output else _default_output(options.runs)
    path = path / "report.html" if path.is_dir() else path
    what = f"--output {path}" if options.output else f"{path}, where the page goes without --output"
    require_file(what, path, makes_folders=True)
    return path


def _default_output(paths: Sequence[str]) -> Path:
    """Beside the one run that it is about; of several, none is the home."""
    if len(paths) > 1:
        return Path("report.html")
    path = Path(paths[0])
    return (path if path.is_dir() else path.parent) / "report.html"


@contextmanager
def _progress(what: str) -> Iterator[None]:
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    if not console.is_terminal:  # in a log file a moving line is noise
        yield
        return
    with console.status(Text(f"{what} ...")):
        yield
