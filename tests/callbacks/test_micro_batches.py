"""MicroBatches writes down what was trained on, line by line. On two ranks: tests/ranks."""

import shutil
import time
from pathlib import Path

import pytest

from dflash_lightning.callbacks.micro_batches import MicroBatches
from tests.ranks import jobs
from tests.runs import toy_data, toy_module, toy_trainer


def test_there_is_a_line_for_every_micro_batch(observed):
    run = observed[1]
    assert len(run["micro"]) == len(run["batches"]) == 2 * len(run["steps"])
    for number, (line, batch) in enumerate(zip(run["micro"], run["batches"], strict=True)):
        assert (line["step"], line["micro_step"], line["rank"]) == (number // 2 + 1, number % 2, 0)
        assert line["bucket"] == batch["bucket"]
        assert line["samples"] == len(batch["ids"])
        assert line["seq_len"] == batch["padded_length"]
        assert line["tokens"] == sum(batch["lengths"])
        assert line["loss"] == pytest.approx(line["loss_sum"] / line["weight"])
        assert 0 <= line["correct"] <= line["supervised"]
        assert line["blocks"] <= line["supervised"]
        assert line["applied"]
    times = [line["time"] for line in run["micro"]]
    assert times == sorted(times)
    assert abs(times[-1] - time.time()) < 3600
    assert not any("micro/loss" in row for row in run["rows"])  # unless asked for


@pytest.mark.slow
def test_a_resumed_run_appends_and_a_fresh_one_begins_anew(observed, tmp_path, toy_target, observed_store):
    root = tmp_path / "again"
    root.mkdir()
    shutil.copy(f"{observed[0]}/micro_batches.rank0.jsonl", root)
    settings = {"log_every_n_steps": 3, "keep": True, "observe": True}
    arguments = (str(root), str(toy_target), observed_store)
    rest = jobs.fit(*arguments, resume=f"{observed[0]}/kept/step=10.ckpt", **settings)
    whole = observed[1]["micro"]
    assert rest["micro"][: len(whole)] == whole
    repeated = rest["micro"][len(whole) :]
    assert [{**line, "time": 0} for line in repeated] == [{**line, "time": 0} for line in whole[20:]]
    fresh = jobs.fit(*arguments, max_epochs=1, **settings)
    assert [line["step"] for line in fresh["micro"]] == [n // 2 + 1 for n in range(12)]


def test_a_skipped_step_says_so_and_stays_json(tmp_path, toy_target, observed_store):
    ours = jobs.fit(
        str(tmp_path), str(toy_target), observed_store, plant=(7, "nan"), max_epochs=1, observe=True
    )
    (skipped,) = [step["step"] for step in ours["steps"] if step["skipped"]]
    assert {line["step"] for line in ours["micro"] if not line["applied"]} == {skipped}
    bad = [line for line in ours["micro"] if line["loss"] is None]
    assert len(bad) == 1
    assert (bad[0]["loss_sum"], bad[0]["step"]) == (None, skipped)
    assert "NaN" not in (tmp_path / "micro_batches.rank0.jsonl").read_text()


def test_values_go_to_the_loggers_under_a_name_of_their_own(tmp_path, toy_target, observed_store):
    callback = MicroBatches(folder=str(tmp_path / "elsewhere"), log=True)
    trainer = toy_trainer(tmp_path, callbacks=[callback], max_epochs=1)
    trainer.fit(toy_module(toy_target), toy_data(Path(observed_store)))
    lines = jobs.read_lines(tmp_path / "elsewhere" / "micro_batches.rank0.jsonl")
    rows = [row for row in jobs.read_rows(Path(trainer.log_dir)) if "micro/loss" in row]
    assert len(rows) == len(lines) == 12
    for row, line in zip(rows, lines, strict=True):
        assert int(row["step"]) == line["step"] - 1
        assert float(row["micro/loss"]) == pytest.approx(line["loss"])
        assert float(row["micro/bucket"]) == line["bucket"]
        assert float(row["micro/seq_len"]) == line["seq_len"]
        assert "train/loss" not in row
