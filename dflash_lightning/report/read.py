"""Finds and reads the log of a run, in four stages: find, choose, join, sort by step.

in    a run's folder, a metrics.csv, a W&B folder, another trainer's JSONL or trainer_state.json
out   Run
law   what can be read is read: the log of a crashed run gives a Run with notes, not an error
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dflash_lightning.report.aliases import ALIASES, looked_for, with_our_names
from dflash_lightning.report.join import holds_training, join, logs_of_run
from dflash_lightning.report.narrow import narrow
from dflash_lightning.report.run import LOSS, Run
from dflash_lightning.report.sources.find import find_logs
from dflash_lightning.report.sources.json_log import read_objects
from dflash_lightning.report.sources.micro_log import PATTERN, read_micro_log, singles
from dflash_lightning.report.sources.rows import Row, Rows, is_step, number
from dflash_lightning.report.table import HOUSEKEEPING, tabulate

LOGGER_STEPS = ("step", "trainer/global_step")
STEPS = ("train/step", *ALIASES["train/step"])
SKIPPED = "skipped_steps.jsonl"
EVALUATIONS = "Validate and test write logs of their own: name the folder of a run that was fitted"
MOST_NAMES = 6
"""Names that a list in a message shows."""


def read_run(path: Path, *, steps: tuple[int, int] | None = None) -> Run:
    """The log at `path`; `steps` keeps those from the first to the last, both included.

    Raises: OSError where there is nothing to read, ValueError where nothing holds a step with its loss.
    """
    used, choice_notes = _choose(path)
    source = join(used)
    train, validation = tabulate(source.rows)
    folders = _folders(path, [part.path for part in used])
    micro, micro_notes = read_micro_log([file for folder in folders for file in sorted(folder.glob(PATTERN))])
    skipped, skipped_notes = _skipped([folder / SKIPPED for folder in folders])
    run = Run(
        name=path.resolve().name,
        path=str(path),
        steps=train.steps,
        values=train.values,
        times=train.times,
        val_steps=validation.steps,
        validation=validation.values,
        micro=micro or singles(source.rows),
        skipped=skipped,
        non_finite=train.non_finite,
        complete=source.complete,
        notes=[*choice_notes, *source.notes, *train.notes, *micro_notes, *skipped_notes],
        log=source.path,
    )
    return run if steps is None else narrow(run, *steps)


def _choose(path: Path) -> tuple[list[Rows], list[str]]:
    """(logs of the run, oldest first; notes): validate, test and failed starts leave logs of their own."""
    idle: list[Rows] = []
    for found in find_logs(path):
        parts = [_with_steps(part) for part in found.read()]
        idle += [part for part in parts if not holds_training(part)]
        if used := logs_of_run(parts, found.relation):
            count = "1 log" if len(idle) == 1 else f"{len(idle)} logs"
            left_out = f"left out {count} without training: {_listed([_name(part) for part in idle])}"
            return used, [*found.notes, *([left_out] if idle else [])]
    raise ValueError(_no_loss(idle[0]) if len(idle) == 1 else _no_training(path, idle))


def _with_steps(part: Rows) -> Rows:
    """Our names, and train/step in every row.

    Lightning's loggers count from 0 and train/step from 1; validation rows hold the logger's step only.
    """
    usable = [row for row in part.rows if all(is_step(row[name]) for name in STEPS if name in row)]
    gaps = [row["train/step"] - row[name] for row in usable for name in LOGGER_STEPS if _both(row, name)]
    offset = float(np.median(gaps)) if gaps else 0.0
    rows: list[Row] = []
    for row in usable:
        renamed = with_our_names(row)
        if "train/step" in renamed and "train/step" not in row:
            renamed["train/step"] += offset
        rows.append(renamed)
    left_out = len(part.rows) - len(usable)
    notes = [f"{part.path.name}: {left_out} rows with a step that is no number are left out"]
    return replace(part, rows=rows, notes=part.notes + notes * (left_out > 0))


def _both(row: Row, name: str) -> bool:
    return "train/step" in row and name in row


def _folders(path: Path, files: Sequence[Path]) -> list[Path]:
    """Where the files beside a log lie: the run's folder, and each logger's (logs/version_0)."""
    folders = [path, *(file.parent for file in files)] if path.is_dir() else [path.parent]
    return [folder for i, folder in enumerate(folders) if folder not in folders[:i]]


def _skipped(paths: Sequence[Path]) -> tuple[list[dict[str, Any]], list[str]]:
    read = [read_objects(path) for path in paths if path.is_file()]
    lines = {}
    for one in (one for objects, _, _ in read for one in objects):
        step = number(one.get("step"))
        if step is not None and is_step(step):
            lines[int(step)] = one | {"step": int(step)}
    return [lines[step] for step in sorted(lines)], [note for _, notes, _ in read for note in notes]


def _no_loss(source: Rows) -> str:
    names = sorted({name for row in source.rows for name in row})
    if not names:
        known = f": {'; '.join(source.notes)}" if source.notes else ""
        return f"{source.path} holds no values yet{known}"
    if not any("train/step" in row for row in source.rows):
        return (
            f"{source.path} holds no step: looked for {looked_for('train/step')}; it has {', '.join(names)}"
        )
    hint = f". {EVALUATIONS}" if any(name.startswith(("val/", "test/")) for name in names) else ""
    return f"{source.path} holds no loss: looked for {looked_for(LOSS)}; it has {', '.join(names)}{hint}"


def _no_training(path: Path, idle: Sequence[Rows]) -> str:
    held = []
    for part in idle:
        names = sorted({name for row in part.rows for name in row} - HOUSEKEEPING)
        held.append(f"{_name(part)} ({_listed(names) if names else 'no values'})")
    return (
        f"none of the {len(idle)} logs in {path} is one of a training: looked for {looked_for(LOSS)} "
        f"beside {looked_for('train/step')}; found {_listed(held)}. {EVALUATIONS}"
    )


def _name(part: Rows) -> str:
    """A file that is named like others goes by its folder."""
    return part.path.parent.name if part.path.suffix in (".csv", ".wandb") else part.path.name


def _listed(names: Sequence[str]) -> str:
    """The first names."""
    return ", ".join([*names[:MOST_NAMES], *(["..."] if len(names) > MOST_NAMES else [])])
