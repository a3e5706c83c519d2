"""Logging to W&B without a network: the same names and values as in CSV, one run over all its resumes."""

import csv
import os

import pytest
import yaml
from lightning import Callback
from lightning.pytorch.loggers import CSVLogger, WandbLogger

from dflash_lightning.lightning_cli import run_cli
from dflash_lightning.report.sources.wandb_log import history_row, parsed
from dflash_lightning.training.start.wandb_runs import FILE, begin_wandb, resume_wandb
from tests.every_callback import DOCUMENTED, every_callback
from tests.ranks.runs import toy_config
from tests.runs import make_store, toy_data, toy_module, toy_trainer
from tests.wandb_file import history, run_files

LENGTHS = [8, 12, 18, 25, 30, 9, 14, 22] * 3
SHOWN = {f"{kind}{form}" for kind in ("loss/bands", "val/acceptance") for form in ("", "_picture")}
SHOWN |= {"bucket_mix/table", "bucket_mix/picture"}
pytestmark = pytest.mark.filterwarnings("ignore")  # wandb's own, of many kinds


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_RUN_ID", raising=False)


@pytest.mark.slow
def test_an_offline_run_holds_what_csv_holds(tmp_path, toy_target):
    store = make_store(tmp_path / "data", toy_target, LENGTHS, held_out=[9, 20])
    wandb_logger = WandbLogger(project="dflash", save_dir=tmp_path)
    begin_wandb(wandb_logger, tmp_path)
    loggers = [CSVLogger(tmp_path, name="logs"), wandb_logger]
    trainer = toy_trainer(tmp_path, logger=loggers, callbacks=every_callback())
    trainer.fit(toy_module(toy_target), toy_data(store))
    wandb_logger.experiment.finish()

    (file,) = run_files(tmp_path)
    rows = [row for row in history(file) if "train/loss" in row]
    lines = csv.DictReader((tmp_path / "logs/version_0/metrics.csv").read_text().splitlines())
    expected = [line for line in lines if line["train/loss"]]
    assert len(rows) == len(expected) >= 4
    for row, line in zip(rows, expected, strict=True):
        for name in DOCUMENTED & {name for name, value in line.items() if value}:
            assert float(row[name]) == pytest.approx(float(line[name]), nan_ok=True), name
    assert {name for name, value in expected[-1].items() if value} >= DOCUMENTED
    sent = [set(history_row(record)) for record in of_kind(file, "history")]
    for name in SHOWN:
        times = sum(any(key == name or key.startswith(f"{name}/") for key in keys) for keys in sent)
        assert times == 2, name  # one an epoch
    axes = {record.metric.glob_name: record.metric.step_metric for record in of_kind(file, "metric")}
    assert axes["*"] == "train/step"
    assert (tmp_path / FILE).read_text().strip() in file.name


def of_kind(file, kind):
    """Records of W&B's file; one of each logged row is of kind "history"."""
    return [record for record in parsed(file) if record.WhichOneof("record_type") == kind]


class Webhook(Callback):
    """What somebody may hand a callback of their own."""

    def __init__(self, api_key: str, url: str, where: str) -> None:
        self.told = (api_key, url, where)


@pytest.mark.slow
def test_a_resumed_run_goes_on_under_its_id_and_a_secret_stays_here(tmp_path, toy_target, monkeypatch):
    import wandb

    store = make_store(tmp_path / "data", toy_target, LENGTHS)
    monkeypatch.setenv("PRIVATE_PLACE", "/mnt/geheim-7")
    config = toy_config(tmp_path / "run", toy_target, store, delay=0.0)
    secrets = {"api_key": "geheim-1", "url": "https://me:geheim-2@host", "where": "${oc.env:PRIVATE_PLACE}/x"}
    kept = {"dirpath": str(tmp_path / "kept"), "filename": "last", "save_on_train_epoch_end": True}
    config["trainer"]["callbacks"] = [
        {"class_path": "tests.training.start.test_wandb.Webhook", "init_args": secrets},
        {"class_path": "ModelCheckpoint", "init_args": kept},
    ]
    place = "${trainer.default_root_dir}"
    config["trainer"]["logger"] = {"class_path": "WandbLogger", "init_args": {"save_dir": place}}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    for words in (["--trainer.max_epochs=1"], ["--ckpt_path=last"], ["--trainer.max_epochs=1"]):
        cli = run_cli(["fit", f"--config={path}", *words])
        assert cli.trainer.callbacks[0].told == ("geheim-1", secrets["url"], "/mnt/geheim-7/x")
        wandb.finish()

    files = sorted(run_files(tmp_path / "run"), key=os.path.getmtime)
    first, resumed, fresh = (file.stem.split("-")[-1] for file in files)
    assert first == resumed != fresh
    steps = [[row["train/step"] for row in history(file) if "train/loss" in row] for file in files]
    assert steps[1][0] > steps[0][-1] > steps[2][0]
    for written in [*files, *(tmp_path / "run").glob("config*.yaml"), *(tmp_path / "kept").glob("*.ckpt")]:
        assert b"geheim" not in written.read_bytes(), written
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert saved["trainer"]["callbacks"][0]["init_args"]["where"] == "${oc.env:PRIVATE_PLACE}/x"


@pytest.mark.parametrize(
    ("init", "environment", "expected"),
    [
        ({}, {}, "abc"),
        ({"id": None, "version": None}, {}, "abc"),
        ({"id": "mine"}, {}, "mine"),  # the user's own wins
        ({"version": "mine"}, {}, None),
        ({}, {"WANDB_RUN_ID": "mine"}, None),
    ],
)
def test_the_remembered_id_is_given_to_a_logger_that_names_none(init, environment, expected, tmp_path):
    (tmp_path / FILE).write_text("abc\n")
    loggers = [{"class_path": "CSVLogger", "init_args": {}}, {"class_path": "WandbLogger", "init_args": init}]
    resume_wandb(loggers, tmp_path, environment)
    assert loggers[1]["init_args"].get("id") == expected
    assert loggers[0]["init_args"] == {}


@pytest.mark.parametrize("loggers", [[], [True], [None], [{"class_path": "CSVLogger", "init_args": {}}]])
def test_without_wandb_nothing_is_resumed(loggers, tmp_path):
    before = repr(loggers)
    (tmp_path / FILE).write_text("abc\n")
    resume_wandb(loggers, tmp_path, {})
    assert repr(loggers) == before


def test_a_folder_that_remembers_nothing_gives_a_new_run(tmp_path):
    loggers = [{"class_path": "WandbLogger", "init_args": {}}]
    resume_wandb(loggers, tmp_path, {})
    assert loggers[0]["init_args"] == {}
