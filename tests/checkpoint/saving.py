"""Small checkpoints for the tests of this folder: contents that tell their step."""

from dataclasses import replace

from dflash_lightning.checkpoint.job import Retention, SaveJob
from dflash_lightning.checkpoint.keeping.removal import sweep
from dflash_lightning.checkpoint.layout import name_of_data
from dflash_lightning.checkpoint.listing import list_manifests
from dflash_lightning.checkpoint.publishing.publish import publish

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
    """Publish, and delete at once."""
    published, _ = save_and_sweep(store, step, prefix=prefix, **fields)
    return published


def save_and_sweep(store, step, *, prefix=PREFIX, **fields):
    published = publish(store, prefix, job(step, **fields), writes(step))
    return published, sweep(store, prefix, published.superfluous)


def keep(**fields):
    return replace(Retention(keep_last=-1), **fields)


def steps(store, prefix=PREFIX):
    """Of the manifests that can be read."""
    return sorted(m.step for m in list_manifests(store, prefix).manifests)


def data_of(store):
    """Keys of the data in a memory store, with or without a manifest."""
    return sorted(key for key in store.objects if name_of_data(key.removeprefix(f"{PREFIX}/")))
