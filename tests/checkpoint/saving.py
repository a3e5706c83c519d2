"""Small checkpoints for the tests of this folder: contents that tell their step."""

from dataclasses import replace

from dflash_lightning.checkpoint.job import Retention, SaveJob
from dflash_lightning.checkpoint.publish import publish

PREFIX = "runs/a"


def content(step, size=3000):
    """Bytes that no other step has."""
    return (f"state of step {step}; ".encode() * size)[:size]


def writes(step, size=3000):
    def write(file):
        data = content(step, size)
        for start in range(0, len(data), 1000):
            file.write(data[start : start + 1000])

    return write


def job(step, **fields):
    values = {"epoch": 0, "kind": "step", "run_id": "a", "retention": Retention()}
    return SaveJob(step=step, **(values | fields))


def save(store, step, *, prefix=PREFIX, **fields):
    return publish(store, prefix, job(step, **fields), writes(step))


def keep(**fields):
    return replace(Retention(keep_last=-1), **fields)
