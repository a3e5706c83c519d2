"""What `--ckpt_path last` and `best` stand for, and what is refused before anything is built."""

import os
from dataclasses import asdict

import pytest

from dflash_lightning.checkpoint.job import Retention
from dflash_lightning.checkpoint.stores.errors import StoreError
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.open import open_store
from dflash_lightning.training.checkpoints.checkpoint_path import meant_by, require_usable
from tests.checkpoint.saving import save

STORE = {
    "class_path": "dflash_lightning.callbacks.s3_checkpoint.S3Checkpoint",
    "init_args": {"uri": "s3://b/run/"},
}
BEST_BY_LOSS = Retention(monitor="loss")


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


def kept_at(uri, settings=None, **options):
    init = {"uri": str(uri), **({"settings": asdict(settings)} if settings else {}), **options}
    return [{"class_path": "GradNorm"}, {**STORE, "init_args": init}]


def refusal(meant, callbacks=(), *, fit=True):
    with pytest.raises(StoreError) as caught:
        require_usable(str(meant), callbacks, fit=fit)
    assert str(caught.value).startswith(f"--ckpt_path {meant}: ")
    return str(caught.value)


@pytest.mark.parametrize("word", ["", "/last", "/best", "/newest", "/step=8"])
def test_a_folder_with_a_checkpoint_passes(word, tmp_path):
    save(LocalStore(tmp_path), 8, prefix="", metrics={"loss": 1.0}, retention=BEST_BY_LOSS)
    require_usable(f"{tmp_path}{word}", (), fit=True)


@pytest.mark.parametrize("meant", ["best", "hpc", "registry:drafter", "gone.ckpt", "https://host/a.ckpt"])
def test_what_is_no_address_is_left_to_others(meant):
    require_usable(meant, (), fit=True)


def test_a_folder_without_what_was_asked_for_is_refused(tmp_path):
    missing = f"there is no checkpoint {tmp_path}/last: nothing lies there; check the address"
    assert missing in refusal(f"{tmp_path}/last")
    save(LocalStore(tmp_path), 8, prefix="")
    assert "; there are steps 8" in refusal(f"{tmp_path}/step=9")
    with pytest.raises(ValueError, match="none is best; resume from last or from a step"):
        require_usable(f"{tmp_path}/best", (), fit=True)
    (data,) = (tmp_path / "data").iterdir()
    data.write_bytes(data.read_bytes()[1:])
    assert "can be used: " in (broken := refusal(f"{tmp_path}/last"))
    assert "has 2,999 bytes, its manifest says 3,000" in broken


def test_only_a_fit_from_the_newest_of_its_own_store_may_start_fresh(tmp_path):
    callbacks = kept_at(tmp_path / "kept", if_missing="fresh")
    require_usable(f"{tmp_path}/kept/last", callbacks, fit=True)
    for meant, fit in [("kept/last", False), ("kept/step=4", True), ("kept/best", True), ("other", True)]:
        assert "there is no checkpoint" in refusal(f"{tmp_path}/{meant}", callbacks, fit=fit)
    assert "there is no checkpoint" in refusal(f"{tmp_path}/kept/last", kept_at(tmp_path / "kept"))


@pytest.mark.slow
def test_a_real_server(s3_settings, s3_uri, s3_env, monkeypatch):
    callbacks = kept_at(s3_uri, s3_settings)
    assert f"there is no checkpoint {s3_uri}/last: nothing lies there" in refusal(f"{s3_uri}/last", callbacks)
    bucket, prefix = open_store(s3_uri, s3_settings)
    save(bucket, 8, prefix=prefix)
    require_usable(f"{s3_uri}/last", callbacks, fit=True)
    assert "there is no bucket nowhere" in refusal("s3://nowhere/run/last", callbacks)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong" * 8)
    assert "the secret key does not belong to the access key" in refusal(f"{s3_uri}/last", callbacks)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "there are no credentials" in refusal(f"{s3_uri}/last", callbacks)
