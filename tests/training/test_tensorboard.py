"""TensorBoard's event file holds what CSV holds, with tables as text and pictures as images."""

import csv

import pytest
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from dflash_lightning.callbacks.bucket_mix import BucketMix
from dflash_lightning.callbacks.grad_direction import GradDirection
from dflash_lightning.callbacks.grad_norm import GradNorm
from dflash_lightning.training.watch.log_pictures import as_markdown
from tests.runs import make_store, toy_data, toy_module, toy_trainer

NAMES = ["train/step", "train/loss", "train/grad_norm", "batch/mix_distance", "direction/cosine"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # tensorboard's own
def test_an_event_file_holds_what_csv_holds(tmp_path, toy_target):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    store = make_store(tmp_path / "data", toy_target, [8, 12, 18, 25, 30, 9, 14, 22] * 3)
    board = TensorBoardLogger(tmp_path, name="board")
    loggers = [CSVLogger(tmp_path, name="logs"), board]
    callbacks = [GradNorm(), BucketMix(), GradDirection(every_n_steps=2)]
    trainer = toy_trainer(tmp_path, logger=loggers, callbacks=callbacks)
    trainer.fit(toy_module(toy_target), toy_data(store))

    events = EventAccumulator(board.log_dir).Reload()
    expected = list(csv.DictReader((tmp_path / "logs/version_0/metrics.csv").read_text().splitlines()))
    for name in NAMES:
        values = [(event.step, event.value) for event in events.Scalars(name)]
        lines = [(int(line["step"]), float(line[name])) for line in expected]
        assert [step for step, _ in values] == [step for step, _ in lines], name
        assert [value for _, value in values] == pytest.approx([value for _, value in lines]), name
    pictures = events.Images("bucket_mix/picture")
    assert [picture.width for picture in pictures] == [800, 800]  # one an epoch
    (first, _) = events.Tensors("bucket_mix/table/text_summary")
    assert b"| bucket | longest | plan_pct |" in first.tensor_proto.string_val[0]


def test_a_table_as_text():
    text = as_markdown(["name", "value"], [["a", 0.123456789], ["b", 3.0]])
    assert text.splitlines() == ["| name | value |", "| --- | --- |", "| a | 0.123457 |", "| b | 3 |"]
