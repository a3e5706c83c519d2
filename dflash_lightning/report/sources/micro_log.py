"""Reads single micro-batches (micro_batches.rank*.jsonl, or another trainer's one line a batch)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dflash_lightning.report.run import LOSS, UNKNOWN_BUCKET, FloatArray, MicroLog
from dflash_lightning.report.sources.json_log import read_jsonl
from dflash_lightning.report.sources.rows import Row, is_step

PATTERN = "micro_batches.rank*.jsonl"


def read_micro_log(paths: Sequence[Path]) -> tuple[MicroLog | None, list[str]]:
    """(all ranks' micro-batches, notes); of one written twice, as after a resume, the later wins."""
    by_batch: dict[tuple[float, float, float], Row] = {}
    notes: list[str] = []
    for rank, path in enumerate(paths):
        part = read_jsonl(path)
        notes += part.notes
        for row in part.rows:
            if "loss" in row and is_step(row.get("step")):
                batch = (row["step"], row.get("micro_step", 0.0), row.get("rank", float(rank)))
                by_batch[batch] = row | {"rank": batch[2]}
    return as_micro_log([by_batch[batch] for batch in sorted(by_batch)], step="step", loss="loss"), notes


MOST_BUCKETS = 10_000
"""A bucket's number beyond this is none."""
REPEATED_SHARE = 0.2
"""Lines that repeat the step of the line before, from which a log is one line a batch, not one a step."""


def singles(rows: Sequence[Row]) -> MicroLog | None:
    """Rows that are single batches: each has a length or bucket, and several belong to one step."""
    labelled = [row for row in rows if LOSS in row and ("seq_len" in row or "bucket" in row)]
    steps = [row["train/step"] for row in labelled if "train/step" in row]
    repeats = sum(a == b for a, b in zip(steps, steps[1:], strict=False))
    if len(steps) != len(labelled) or repeats < REPEATED_SHARE * len(labelled):
        return None
    return as_micro_log(sorted(labelled, key=lambda row: row["train/step"]), step="train/step", loss=LOSS)


def as_micro_log(rows: Sequence[Row], *, step: str, loss: str) -> MicroLog | None:
    """Rows in the order of their steps -> arrays; None where there are none."""
    if not rows:
        return None
    bucket = _column(rows, "bucket", float(UNKNOWN_BUCKET))
    known = (bucket >= 0) & (bucket < MOST_BUCKETS)
    return MicroLog(
        step=_column(rows, step).astype(np.int64),
        loss=_column(rows, loss),
        bucket=np.where(known, bucket, UNKNOWN_BUCKET).astype(np.int64),
        seq_len=_column(rows, "seq_len"),
        weight=_column(rows, "weight", 1.0),
        rank=np.nan_to_num(_column(rows, "rank", 0.0)).astype(np.int64),
        time=_column(rows, "time"),
    )


def _column(rows: Sequence[Row], name: str, absent: float = np.nan) -> FloatArray:
    return np.array([row.get(name, absent) for row in rows], np.float64)
