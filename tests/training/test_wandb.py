"""Logging to W&B without a network: the same names and values as in CSV, in one run file."""

import csv

import pytest
from lightning.pytorch.loggers import CSVLogger, WandbLogger

from dflash_lightning.callbacks.bucket_mix import BucketMix
from dflash_lightning.callbacks.grad_norm import GradNorm
from tests.runs import make_store, toy_data, toy_module, toy_trainer
from tests.wandb_file import history, run_files

DOCUMENTED = {
    "batch/bucket_0_pct",
    "batch/bucket_0_pct_total",
    "batch/bucket_0_samples_pct",
    "batch/bucket_0_tokens_pct",
    "batch/avg_seq_len",
    "batch/max_seq_len",
    "batch/batch_size",
    "batch/padding_efficiency",
    "train/grad_norm",
    "train/loss",
    "train/step",
}


@pytest.mark.filterwarnings("ignore")  # wandb's own, of many kinds
def test_an_offline_run_holds_what_csv_holds(tmp_path, toy_target, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    store = make_store(tmp_path / "data", toy_target, [8, 12, 18, 25, 30, 9, 14, 22] * 3)
    wandb_logger = WandbLogger(project="dflash", save_dir=tmp_path)
    loggers = [CSVLogger(tmp_path, name="logs"), wandb_logger]
    trainer = toy_trainer(tmp_path, logger=loggers, callbacks=[GradNorm(), BucketMix()])
    trainer.fit(toy_module(toy_target), toy_data(store))
    wandb_logger.experiment.finish()

    (file,) = run_files(tmp_path)
    rows = [row for row in history(file) if "train/loss" in row]
    expected = list(csv.DictReader((tmp_path / "logs/version_0/metrics.csv").read_text().splitlines()))
    assert len(rows) == len(expected)
    for row, line in zip(rows, expected, strict=True):
        assert set(row) >= DOCUMENTED
        for name in DOCUMENTED:
            assert row[name] == pytest.approx(float(line[name]))
