"""What can be read is read: whole runs, resumed ones, broken ones, and other trainers' logs."""

import csv
import json

import numpy as np
import pytest

from dflash_lightning.report.read import read_run
from dflash_lightning.report.sources.wandb_log import read_wandb
from tests.report.synthetic import (
    as_run,
    columns,
    foreign_lines,
    metrics,
    sampled_lines,
    train,
    write_csv,
    write_lines,
    write_run,
)


class TestOurFolders:
    def test_files_give_what_was_logged(self, tmp_path):
        training = train(0, steps=60)
        run, expected = read_run(write_run(tmp_path / "demo", training)), as_run(training)
        assert run.name == "demo"
        assert run.complete
        assert run.notes == []
        assert set(run.values) == set(expected.values)
        np.testing.assert_array_equal(run.steps, expected.steps)
        for name, values in expected.values.items():
            np.testing.assert_allclose(run.values[name], values)
        for name, values in vars(expected.micro).items():
            np.testing.assert_array_equal(getattr(run.micro, name), values)

    @pytest.mark.parametrize("below", ["logs", "logs/version_0", "logs/version_0/metrics.csv"])
    def test_a_loggers_folder_or_its_file_will_do(self, tmp_path, below):
        write_run(tmp_path, train(0, steps=50))
        assert len(read_run(tmp_path / below).steps) == 50

    def test_validation_has_its_own_steps(self, tmp_path):
        rows = metrics(train(0, steps=50)) + [{"step": 49.0, "val/tau": 2.5, "val/loss": 1.0}]
        run = read_run(write_csv(tmp_path / "metrics.csv", rows))
        assert run.val_steps.tolist() == [50.0]  # Lightning's loggers count from 0, train/step from 1
        assert run.validation["val/tau"].tolist() == [2.5]
        assert len(run.steps) == 50

    def test_steps_narrow_everything(self, tmp_path):
        run = read_run(write_run(tmp_path, train(0, steps=60)), steps=(20, 29))
        assert run.steps.tolist() == list(range(20, 30))
        assert set(run.micro.step.tolist()) == set(range(20, 30))
        with pytest.raises(ValueError, match=r"no logged step lies from 70 to 80: .* holds steps 1 to 60"):
            read_run(tmp_path, steps=(70, 80))

    def test_skipped_steps_are_listed(self, tmp_path):
        write_run(tmp_path, train(0, steps=50))
        write_lines(
            tmp_path / "logs/version_0/skipped_steps.jsonl", [{"step": 7, "norm": "nan", "batches": []}]
        )
        assert [line["step"] for line in read_run(tmp_path).skipped] == [7]


class TestResumed:
    def test_versions_of_one_run_are_joined_and_the_later_wins(self, tmp_path):
        rows = metrics(train(0, steps=60))
        again = [row | {"train/loss": 9.0} for row in rows[30:]]
        write_csv(tmp_path / "logs/version_9/metrics.csv", rows[:40])
        write_csv(tmp_path / "logs/version_10/metrics.csv", again)
        run = read_run(tmp_path)
        assert run.steps.tolist() == list(range(1, 61))
        assert (run.loss == 9.0).tolist() == [False] * 30 + [True] * 30
        assert "joined 2 logs of one resumed run: version_9, version_10" in run.notes

    def test_a_fresh_run_in_the_same_folder_is_not(self, tmp_path):
        write_csv(tmp_path / "logs/version_0/metrics.csv", metrics(train(0, steps=60)))
        write_csv(tmp_path / "logs/version_1/metrics.csv", metrics(train(1, steps=45)))
        run = read_run(tmp_path)
        assert len(run.steps) == 45
        assert run.notes == []

    def test_steps_logged_twice_in_one_file(self, tmp_path):
        rows = metrics(train(0, steps=50))
        run = read_run(
            write_csv(tmp_path / "metrics.csv", rows + [row | {"train/loss": 9.0} for row in rows[45:]])
        )
        assert len(run.steps) == 50
        assert run.loss[-5:].tolist() == [9.0] * 5
        assert "5 steps were logged twice, as after a resume: the later values are kept" in run.notes


class TestBroken:
    def test_a_csv_that_breaks_off(self, tmp_path):
        path = write_csv(tmp_path / "metrics.csv", metrics(train(0, steps=50)))
        path.write_bytes(path.read_bytes()[:-30])
        run = read_run(path)
        assert run.steps.tolist() == list(range(1, 50))
        assert not run.complete
        assert run.notes == ["metrics.csv breaks off in its last line, which is left out"]

    def test_a_json_line_that_breaks_off(self, tmp_path):
        path = write_lines(tmp_path / "log.jsonl", foreign_lines(train(0, steps=50)))
        path.write_text(path.read_text()[:-9])
        run = read_run(path)
        assert len(run.steps) == 49
        assert not run.complete

    def test_lines_that_are_no_json_are_noted(self, tmp_path):
        lines = [json.dumps(line) for line in foreign_lines(train(0, steps=50))]
        path = tmp_path / "log.jsonl"
        path.write_text("\n".join(["Loading weights ...", *lines]) + "\n")
        run = read_run(path)
        assert len(run.steps) == 50
        assert run.notes == ["log.jsonl: 1 lines are no JSON objects and are left out, first 1"]

    @pytest.mark.parametrize(
        "line",
        [
            "[" * 100_000,
            '{"step": 5, "loss": 1' + "0" * 5000 + "}",
            '{"step": NaN, "loss": 1.0}',
            '{"step": Infinity, "loss": 1.0}',
            '{"step": 1e300, "loss": 1.0}',
            '{"step": null, "loss": 1.0}',
            '{"step": [7], "loss": 1.0}',
            "3",
            "\0\0\0",
        ],
        ids=["brackets", "digits", "NaN", "Infinity", "huge", "null", "list", "number", "zeros"],
    )
    def test_one_bad_line_costs_that_line_alone(self, tmp_path, line):
        """In each file of a run: the log itself, the micro-batches, the skipped steps."""
        training = train(0, steps=50)
        write_run(tmp_path, training)
        skipped = {"step": 7, "samples": []}
        for name in ("micro_batches.rank0.jsonl", "skipped_steps.jsonl"):
            path = tmp_path / name
            before = path.read_text() if path.is_file() else json.dumps(skipped) + "\n"
            path.write_text(f"{line}\n{before}")
        run = read_run(tmp_path)
        assert len(run.micro) == 50 * 4
        assert run.micro.step.min() == 1
        assert [one["step"] for one in run.skipped] == [7]
        log = tmp_path / "log.jsonl"
        lines = [json.dumps(one) for one in foreign_lines(training)]
        log.write_text("\n".join([*lines[:20], line, *lines[20:]]) + "\n")
        foreign = read_run(log)
        assert foreign.steps.tolist() == list(range(1, 51))
        assert np.isfinite(foreign.loss).all()

    @pytest.mark.parametrize("bucket", [-3, 10**9, 1e300, "NaN", None])
    def test_a_bucket_that_is_none_is_unknown(self, tmp_path, bucket):
        write_run(tmp_path, train(0, steps=50))
        path = tmp_path / "micro_batches.rank0.jsonl"
        first, *others = path.read_text().splitlines()
        path.write_text("\n".join([json.dumps(json.loads(first) | {"bucket": bucket}), *others]) + "\n")
        run = read_run(tmp_path)
        assert run.micro.bucket.min() == -1
        assert run.num_buckets == 6

    def test_what_fp32_cannot_hold_is_infinite(self, tmp_path):
        lines = foreign_lines(train(0, steps=50))
        run = read_run(write_lines(tmp_path / "log.jsonl", [*lines, {"step": 51, "loss": 1e308}]))
        assert run.non_finite == [51]

    def test_a_csv_of_junk_says_what_it_holds(self, tmp_path):
        (tmp_path / "metrics.csv").write_bytes(b"\x80\xff,\0\n" + b"\x81\n" * 49)
        with pytest.raises(ValueError, match="holds no values yet: metrics.csv: 49 lines are left out"):
            read_run(tmp_path)

    def test_a_stray_quotation_mark_takes_no_other_line_with_it(self, tmp_path):
        path = write_csv(tmp_path / "metrics.csv", metrics(train(0, steps=50)))
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines[:20], '"' + "7" * 200_000, *lines[20:]]) + "\n")
        run = read_run(path)
        assert len(run.steps) == 50
        assert len(run.notes) == 1
        assert "metrics.csv: 1 lines are left out, first line 21 (0 cells instead of" in run.notes[0]

    def test_a_folder_or_a_broken_link_is_no_log(self, tmp_path):
        (tmp_path / "metrics.csv").mkdir()
        (tmp_path / "trainer_state.json").symlink_to(tmp_path / "gone")
        (tmp_path / "run-a.wandb").symlink_to("run-a.wandb")
        with pytest.raises(FileNotFoundError, match="no log found in"):
            read_run(tmp_path)

    def test_marks_that_editors_put_first_are_no_part_of_a_name(self, tmp_path):
        lines = "\n".join(json.dumps(line) for line in foreign_lines(train(0, steps=50)))
        (tmp_path / "log.jsonl").write_text("\ufeff" + lines.replace("\n", "\r\n") + "\r\n", encoding="utf-8")
        run = read_run(tmp_path / "log.jsonl")
        assert len(run.steps) == 50
        assert run.notes == []

    def test_losses_that_are_no_numbers(self, tmp_path):
        rows = [
            {"train/step": 1, "train/loss": 2.0},
            {"train/step": 2, "train/loss": "nan"},
            {"train/step": 3},
        ]
        run = read_run(write_csv(tmp_path / "metrics.csv", rows + [{"train/step": 4, "train/loss": "inf"}]))
        assert run.non_finite == [2, 4]
        assert run.loss.tolist()[0] == 2.0


class TestOtherTrainers:
    def test_hf_trainer_state(self, tmp_path):
        history = [
            {"step": 10 * i, "loss": 2.0, "grad_norm": 1.0, "learning_rate": 1e-4} for i in range(1, 6)
        ]
        history += [{"step": 50, "eval_loss": 1.5}, {"step": 50, "train_loss": 7.0, "train_runtime": 3.0}]
        folder = tmp_path / "checkpoint-50"
        folder.mkdir()
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
        run = read_run(tmp_path)
        assert run.loss.tolist() == [2.0] * 5
        assert run.validation["val/loss"].tolist() == [1.5]
        assert set(run.values) == {"train/loss", "train/grad_norm", "train/lr"}

    def test_nested_names_and_dates(self, tmp_path):
        lines = [
            {"global_step": i, "train": {"loss": 1.0}, "timestamp": f"2026-01-01T00:00:{i:02d}+00:00"}
            for i in (1, 2)
        ]
        run = read_run(write_lines(tmp_path / "log.jsonl", lines))
        assert run.loss.tolist() == [1.0, 1.0]
        assert np.diff(run.times).tolist() == [1.0]

    def test_lines_of_one_step_are_single_batches(self, tmp_path):
        training = train(0, steps=300)
        lines = sampled_lines(training)
        run = read_run(write_lines(tmp_path / "log.jsonl", lines))
        assert len(run.micro) == len(lines)
        assert run.micro.loss.tolist() == [line["loss"] for line in lines]
        assert len(run.steps) < len(lines)


class TestErrors:
    def test_nothing_there(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="does not exist: give a run's folder, or its log file"):
            read_run(tmp_path / "no")
        with pytest.raises(
            FileNotFoundError, match=r"no log found in .*: looked for metrics.csv, version_\*/"
        ):
            read_run(tmp_path)

    def test_no_loss_lists_what_was_looked_for(self, tmp_path):
        path = write_lines(tmp_path / "log.jsonl", [{"step": 1, "lr": 0.1}])
        with pytest.raises(
            ValueError, match=r"holds no loss: looked for train/loss, loss, train_loss.*it has train/lr"
        ):
            read_run(path)

    def test_no_step(self, tmp_path):
        path = write_lines(tmp_path / "log.jsonl", [{"loss": 1.0}])
        with pytest.raises(ValueError, match="holds no step: looked for train/step, step, global_step"):
            read_run(path)

    def test_no_values_yet(self, tmp_path):
        (tmp_path / "metrics.csv").write_text("")
        with pytest.raises(ValueError, match="holds no values yet"):
            read_run(tmp_path)

    def test_a_file_of_no_known_kind(self, tmp_path):
        (tmp_path / "loss.png").write_bytes(b"")
        with pytest.raises(ValueError, match=r"its name should end in .csv, .wandb, .jsonl"):
            read_run(tmp_path / "loss.png")

    def test_several_json_logs(self, tmp_path):
        for name in ("a", "b"):
            write_lines(tmp_path / f"{name}.jsonl", [{"step": 1, "loss": 1.0}])
        with pytest.raises(
            ValueError, match=r"holds several logs \(a.jsonl, b.jsonl\): name the one to read"
        ):
            read_run(tmp_path)

    def test_a_file_that_only_claims_to_be_wandbs(self, tmp_path):
        (tmp_path / "run-a.wandb").write_bytes(b"text")
        with pytest.raises(ValueError, match="is no W&B run file"):
            read_wandb(tmp_path / "run-a.wandb")


def test_the_synthetic_csv_has_lightnings_form(tmp_path):
    """`step` counts from 0, and a bucket that was absent leaves its cell empty."""
    training = train(0, steps=50)
    with write_csv(tmp_path / "metrics.csv", metrics(training)).open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["step"] == "0.0"
    assert np.isnan(columns(training)["loss/bucket_0"]).sum() == sum(not row["loss/bucket_0"] for row in rows)
