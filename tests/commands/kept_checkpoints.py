"""Folders of checkpoints, and the command that looks after them: what its tests share. Import the fixtures by
name."""

import pytest

from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.main import main
from tests.checkpoint.saving import keep, save

LOSSES = {4: 1.25, 8: float("nan"), 12: 2.0}
EPOCHS = {4: 0, 8: 1, 12: 1}


@pytest.fixture
def folder(tmp_path):
    store = LocalStore(tmp_path / "runs")
    for step, loss in LOSSES.items():
        rules = {"retention": keep(monitor="val/loss"), "metrics": {"val/loss": loss, "lr": 1e-3}}
        save(store, step, prefix="", epoch=EPOCHS[step], **rules)
    return store.root


def run(*words):
    return main(["checkpoints", *map(str, words)])


def data_of(folder, step):
    return next((folder / "data").glob(f"step={step}-*"))


def lines(capsys):
    return capsys.readouterr().out.splitlines()


def steps(folder):
    return sorted(int(path.name.split("=")[1].split("-")[0]) for path in (folder / "manifests").iterdir())


@pytest.fixture
def two_runs(tmp_path):
    """A finished run, and a fresh one that has begun in its place."""
    store = LocalStore(tmp_path / "two")
    saves = [
        ("first", 27, 1.0),
        ("first", 54, 0.5),
        ("second", 2, 4.0),
        ("second", 4, 3.0),
        ("second", 6, 5.0),
    ]
    for run_id, step, loss in saves:
        rules = {"retention": keep(monitor="val/loss"), "metrics": {"val/loss": loss}}
        save(store, step, prefix="", run_id=run_id, **rules)
    return store.root
