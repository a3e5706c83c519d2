"""Reads JSON logs: one object a line (JSONL), or HF Trainer's trainer_state.json."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dflash_lightning.report.sources.rows import Row, Rows, lines_of, moment, number


def read_objects(path: Path) -> tuple[list[dict[str, Any]], list[str], bool]:
    """(objects, notes, complete): each whole line's object; what is none is left out and noted."""
    objects: list[dict[str, Any]] = []
    bad: list[int] = []
    lines, ended = lines_of(path)
    for line_number, line in enumerate(lines, start=1):
        try:
            loaded = json.loads(line) if line.strip() else {}
        except (
            ValueError,
            RecursionError,
        ):  # no JSON; thousands of digits; of brackets
            loaded = None
        if isinstance(loaded, dict):
            objects += [loaded] if loaded else []
        else:
            bad.append(line_number)
    complete = bool(not bad or bad[-1] != len(lines) or ended)
    notes = [] if complete else [f"{path.name} breaks off in its last line, which is left out"]
    inside = bad if complete else bad[:-1]
    if inside:
        notes.append(
            f"{path.name}: {len(inside)} lines are no JSON objects and are left out, first {inside[0]}"
        )
    return objects, notes, complete


def read_jsonl(path: Path) -> Rows:
    """Numbers of each line's object; nested ones get a slash: {"train": {"loss": 1}} is train/loss."""
    objects, notes, complete = read_objects(path)
    return Rows(path=path, rows=[numbers_of(one) for one in objects], complete=complete, notes=notes)


def read_trainer_state(path: Path) -> Rows:
    """The `log_history` of HF Trainer's trainer_state.json.

    Raises: ValueError where the file holds none.
    """
    try:
        state = json.loads(path.read_text(encoding="utf-8-sig", errors="replace"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no whole JSON file ({error}); give an earlier checkpoint's") from error
    history = state.get("log_history") if isinstance(state, dict) else state
    if not isinstance(history, list):
        raise ValueError(
            f"{path} holds no log_history; only HF Trainer's trainer_state.json is read as .json"
        )
    steps = [
        one for one in history if isinstance(one, dict) and "train_runtime" not in one
    ]  # that one sums up
    return Rows(path=path, rows=[numbers_of(one) for one in steps])


def numbers_of(values: Mapping[str, Any], prefix: str = "") -> Row:
    """name -> number, through nested objects; dates become unix seconds, other texts are left out."""
    row: Row = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            row |= numbers_of(value, f"{prefix}{name}/")
            continue
        found = number(value)
        found = moment(value) if found is None else found
        if found is not None:
            row[prefix + name] = found
    return row
