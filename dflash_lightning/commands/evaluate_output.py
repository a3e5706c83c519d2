"""Beside the page of `evaluate`: its file for programs, and its bar while the work lasts."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jsonargparse import Namespace


def write_json(options: Namespace, values: dict[str, Any]) -> None:
    if options.json:
        Path(options.json).write_text(json.dumps(values, indent=2, allow_nan=False) + "\n")
        print(f"wrote {options.json}", file=sys.stderr)


@contextmanager
def prompts_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("prompts"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda prompts: bar.advance(task, prompts)
