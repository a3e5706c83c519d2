"""What `--ckpt_path last` and `best` stand for."""

import os

import pytest

from dflash_lightning.training.checkpoints.checkpoint_path import meant_by

STORE = {
    "class_path": "dflash_lightning.callbacks.s3_checkpoint.S3Checkpoint",
    "init_args": {"uri": "s3://b/run/"},
}


def files(root, *names):
    for age, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1000 + age, 1000 + age))


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("last", "s3://b/run/last"),
        ("best", "s3://b/run/best"),
        ("s3://c/x/step=4", "s3://c/x/step=4"),
        ("s3://c/a.ckpt", "s3://c/a.ckpt"),
        ("newer.ckpt", "newer.ckpt"),
        ("runs/x/checkpoints", "runs/x/checkpoints"),
    ],
)
def test_the_store_of_the_run_comes_first(word, meaning, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files(tmp_path, "newer.ckpt")
    assert meant_by(word, [{"class_path": "GradNorm"}, STORE], tmp_path) == meaning


@pytest.mark.parametrize("callbacks", [[], [STORE]])
def test_a_file_that_is_not_there_is_said_at_once(callbacks, tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"--ckpt_path .*gone.ckpt: no such file; name one that is there"
    ):
        meant_by(str(tmp_path / "gone.ckpt"), callbacks, tmp_path)


def test_without_a_store_it_is_the_newest_file_in_the_folders_of_callbacks(tmp_path):
    files(tmp_path, "a/old.ckpt", "b/new.ckpt", "elsewhere/newest.ckpt")
    callbacks = [
        {"class_path": "ModelCheckpoint", "init_args": {"dirpath": str(tmp_path / "a")}},
        {"class_path": "StopOnSignal", "init_args": {"folder": str(tmp_path / "b")}},
    ]
    assert meant_by("last", callbacks, tmp_path) == str(tmp_path / "b/new.ckpt")
    assert meant_by("last", [], tmp_path) == str(tmp_path / "elsewhere/newest.ckpt")


def test_best_without_a_store_is_left_to_lightning(tmp_path):
    assert meant_by("best", [], tmp_path) == "best"


def test_no_checkpoint_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="--ckpt_path last: no checkpoint below"):
        meant_by("last", [], tmp_path)
