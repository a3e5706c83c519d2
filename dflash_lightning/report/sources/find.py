"""Where a run's log lies.

in    what the user named: a run's folder, a logger's folder, or one file
out   groups of files, the likeliest first: which of them hold training is known when they are read
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dflash_lightning.report.sources.csv_log import read_csv
from dflash_lightning.report.sources.json_log import read_jsonl, read_trainer_state
from dflash_lightning.report.sources.rows import Rows
from dflash_lightning.report.sources.wandb_log import read_wandb

Reader = Callable[[Path], Rows]
READERS: dict[str, Reader] = {
    ".csv": read_csv,
    ".wandb": read_wandb,
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".log": read_jsonl,
    ".json": read_trainer_state,
}
"""By the end of the file's name."""

PLACES = (
    "metrics.csv",
    "version_*/metrics.csv",
    "*/version_*/metrics.csv",
    "run-*.wandb",
    "*run-*/run-*.wandb",
    "wandb/*run-*/run-*.wandb",
    "trainer_state.json",
    "checkpoint-*/trainer_state.json",
    "*.jsonl",
)
"""Below a folder, the likeliest first."""
Relation = Literal["versions", "one run", "apart"]
"""Files that may go on from one another; that carry one run's id; that are a run each."""
NOT_A_LOG = ("skipped_steps.jsonl", "micro_batches.")


@dataclass(frozen=True, kw_only=True)
class Found:
    """Files that belong together, oldest first."""

    files: Sequence[Path]
    relation: Relation
    notes: list[str] = field(default_factory=list)

    def read(self) -> list[Rows]:
        return [READERS[file.suffix](file) for file in self.files]


def find_logs(path: Path) -> list[Found]:
    """The logs at `path`, the likeliest first; never empty.

    Raises: FileNotFoundError that lists what was looked for, ValueError for a file of no known kind.
    """
    if path.is_file():
        if path.suffix not in READERS:
            raise ValueError(
                f"{path} is no log that can be read: its name should end in {', '.join(READERS)}"
            )
        return [Found(files=[path], relation="one run")]
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give a run's folder, or its log file")
    groups = [group for place in PLACES for group in _groups(_files(path, place))]
    if not groups:
        raise FileNotFoundError(f"no log found in {path}: looked for {', '.join(PLACES)}")
    return groups


def _files(path: Path, place: str) -> list[Path]:
    found = (file for file in path.glob(place) if file.is_file())
    return sorted((file for file in found if not file.name.startswith(NOT_A_LOG)), key=_age)


def _groups(files: Sequence[Path]) -> list[Found]:
    """Files of one place, oldest first -> what belongs together, newest first."""
    if not files:
        return []
    if files[-1].suffix == ".wandb":  # the name holds the run's id
        names = list(dict.fromkeys(file.name for file in reversed(files)))
        runs = [[file for file in files if file.name == name] for name in names]
        beside = "other W&B runs"
        return [
            Found(files=run, relation="one run", notes=_others(len(runs) - 1, beside, run[-1].parent))
            for run in runs
        ]
    if files[-1].suffix == ".csv":
        loggers = {file.parent.parent for file in files}
        logs = [[file for file in files if file.parent.parent == logger] for logger in loggers]
        logs.sort(key=lambda log: (max(file.stat().st_mtime for file in log), log[0]), reverse=True)
        beside = "other loggers' folders"
        return [
            Found(files=log, relation="versions", notes=_others(len(logs) - 1, beside, log[0].parent.parent))
            for log in logs
        ]
    if files[-1].suffix == ".jsonl":
        return [Found(files=files, relation="apart")]
    return [Found(files=[files[-1]], relation="one run")]  # HF Trainer's newest state holds the older ones'


def _age(file: Path) -> tuple[str, int, str]:
    """Sorts old before new: folders count their versions (version_10 after version_9) or name their date."""
    number = re.search(r"(\d+)$", file.parent.name) if "offline" not in file.parent.name else None
    if file.suffix == ".wandb":
        return ("", 0, file.parent.name.removeprefix("offline-"))
    return (str(file.parent.parent), int(number.group(1)) if number else 0, file.parent.name)


def _others(count: int, what: str, chosen: Path) -> list[str]:
    return [f"{count} {what} lie beside {chosen.name} and are left out"] if count else []
