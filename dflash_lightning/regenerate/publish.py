"""The journal of finished work -> the output, in the order of the input.

in    the journal, where every row has its record
out   OUTPUT: the usable chats; OUTPUT.status: one line for every row, also JSON Lines
law   each row of the input is in OUTPUT at most once and in OUTPUT.status exactly once; both are whole or not
      there, and OUTPUT comes last
"""

import json
import os
from pathlib import Path
from typing import Any

from dflash_lightning.regenerate.journal import Journal, sync_folder
from dflash_lightning.regenerate.summary import Summary

# Legal in JSON as they are, but some readers end a line there.
_LINE_ENDS = str.maketrans({end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"})
STATUS_SUFFIX = ".status"  # no suffix of an input: a folder of outputs can be an input


def written_files(output: Path) -> list[Path]:
    """All that is ever written for `output` beside the folder of unfinished work."""
    final = [output.with_name(output.name + STATUS_SUFFIX), output]
    return [*final, *map(_scratch, final)]


def publish(journal: Journal, output: Path, *, max_failed: float) -> Summary:
    """Write both files and rename them. Raises ValueError, and writes neither, where too much has failed."""
    summary = Summary()
    status, _, *scratch = written_files(output)
    try:
        with scratch[0].open("wb") as rows, scratch[1].open("wb") as chats:
            for record in journal.records():
                summary.add(record)
                rows.write(_line(record.facts))
                if record.chat is not None:
                    chats.write(_line(record.chat))
            for file in (rows, chats):
                file.flush()
                os.fsync(file.fileno())
        _require_enough(summary, max_failed, journal.way_out)
        scratch[0].replace(status)
        scratch[1].replace(output)
        sync_folder(output.parent)
    finally:
        for path in scratch:
            path.unlink(missing_ok=True)
    return summary


def _scratch(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _line(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).translate(_LINE_ENDS).encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which only the escaped form can hold
        return json.dumps(value).encode() + b"\n"


def _require_enough(summary: Summary, max_failed: float, way_out: str) -> None:
    failed, read = summary.rows["failed"], summary.read
    if not summary.written:
        raise ValueError(f"none of the {read} rows can be used:\n{summary.places()}\n{way_out}")
    if failed > max_failed * read:
        raise ValueError(
            f"{failed} of {read} rows ({failed / read:.1%}) failed, more than the limit of {max_failed:.1%}:"
            f"\n{summary.places()}\n{way_out}, or raise --max-failed"
        )
