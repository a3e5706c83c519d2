"""Where a run's log lies.

in    what the user named: a run's folder, a logger's folder, or one file
out   the files to read, oldest first, and a reader for them
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
"""Below a folder, the first that is there."""
NOT_A_LOG = ("skipped_steps.jsonl", "micro_batches.")


@dataclass(frozen=True, kw_only=True)
class Found:
    """Files of one run, oldest first."""

    files: Sequence[Path]
    notes: list[str] = field(default_factory=list)

    def read(self) -> list[Rows]:
        return [READERS[file.suffix](file) for file in self.files]


def find_log(path: Path) -> Found:
    """The log at `path`.

    Raises: FileNotFoundError that lists what was looked for, ValueError for a file of no known kind.
    """
    if path.is_file():
        if path.suffix not in READERS:
            raise ValueError(
                f"{path} is no log that can be read: its name should end in {', '.join(READERS)}"
            )
        return Found(files=[path])
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give a run's folder, or its log file")
    for place in PLACES:
        found = (file for file in path.glob(place) if file.is_file())
        files = [file for file in found if not file.name.startswith(NOT_A_LOG)]
        if files:
            return _of_one_run(files, place)
    raise FileNotFoundError(f"no log found in {path}: looked for {', '.join(PLACES)}")


def _of_one_run(files: Sequence[Path], place: str) -> Found:
    files = sorted(files, key=_age)
    newest = files[-1]
    if newest.suffix == ".wandb":
        mine = [file for file in files if file.name == newest.name]  # the name holds the run's id
        return Found(files=mine, notes=_others(len({file.name for file in files}) - 1, newest.parent))
    if newest.suffix == ".csv":
        return Found(files=[file for file in files if file.parent.parent == newest.parent.parent])
    if place == "*.jsonl" and len(files) > 1:
        names = ", ".join(sorted(file.name for file in files))
        raise ValueError(f"{newest.parent} holds several logs ({names}): name the one to read")
    return Found(files=[newest])


def _age(file: Path) -> tuple[str, int, str]:
    """Sorts old before new: folders count their versions (version_10 after version_9) or name their date."""
    number = re.search(r"(\d+)$", file.parent.name) if "offline" not in file.parent.name else None
    if file.suffix == ".wandb":
        return ("", 0, file.parent.name.removeprefix("offline-"))
    return (str(file.parent.parent), int(number.group(1)) if number else 0, file.parent.name)


def _others(count: int, chosen: Path) -> list[str]:
    return [f"{count} other W&B runs lie beside {chosen.name} and are left out"] if count else []
