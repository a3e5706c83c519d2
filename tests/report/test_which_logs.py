"""Which logs of a folder make up the run: those of validate, test and failed starts are no part of it."""

import os

import numpy as np
import pytest

from dflash_lightning.report.facts import settings_of
from dflash_lightning.report.read import read_run
from tests.report.synthetic import write_csv, write_lines

VALIDATE = [{"epoch": 0, "step": 0, "val/loss": 3.0, "val/tau": 2.0}]
TEST = [{"epoch": 0, "step": 0, "test/loss": 3.0, "test/tau": 2.0}]
STARTED = [{"epoch": 0, "step": 4, "train/lr": 0.1}]
EVALUATIONS = {"validate": VALIDATE, "test": TEST, "empty": [], "started": STARTED}


def fit(first, last, *, every=5, loss=2.0):
    """Rows of a fit that logged the steps first..last."""
    return [
        {"epoch": 0, "step": step - 1, "train/step": step, "train/loss": loss + step / 1000}
        for step in range(first, last + 1, every)
    ]


def write_version(folder, number, rows, *, ckpt_path=None):
    """One start's folder as Lightning's CSV logger leaves it; rows None: it failed before its log."""
    version = folder / f"logs/version_{number}"
    version.mkdir(parents=True)
    (version / "config.yaml").write_text(
        f"ckpt_path: {ckpt_path or 'null'}\nmodel: {{target: of-{number}}}\n"
    )
    if rows is not None:
        write_csv(version / "metrics.csv", rows)


RUNS = {
    "one fit": ([fit(5, 35)], [0], range(5, 36, 5)),
    "resumed": ([fit(5, 20), fit(25, 35)], [0, 1], range(5, 36, 5)),
    "resumed twice": ([fit(5, 20), fit(25, 35), fit(40, 60)], [0, 1, 2], range(5, 61, 5)),
    "resumed from an earlier step": ([fit(5, 35), fit(15, 50)], [0, 1], range(5, 51, 5)),
    "resumed, stopped after one value": ([fit(5, 20), fit(25, 25)], [0, 1], range(5, 26, 5)),
    "resumed after one value": ([fit(5, 5), fit(10, 10)], [0, 1], (5, 10)),
    "a fresh fit": ([fit(5, 35), fit(5, 20)], [1], range(5, 21, 5)),
    "a fresh fit, stopped after one value": ([fit(5, 35), fit(5, 5)], [1], (5,)),
    "two fresh fits of one value": ([fit(5, 5), fit(5, 5)], [1], (5,)),
    "a fresh fit, resumed": ([fit(5, 60), fit(5, 20), fit(25, 35)], [1, 2], range(5, 36, 5)),
}
CASES = pytest.mark.parametrize(("fits", "mine", "steps"), list(RUNS.values()), ids=list(RUNS))


def loss_of(fits, mine, steps):
    """By hand: the newest of the run's fits that logged a step, unless a later one began before it."""
    by_step = {}
    for i in mine:
        first = fits[i][0]["train/step"]
        by_step = {step: loss for step, loss in by_step.items() if step < first}
        by_step |= {row["train/step"]: row["train/loss"] for row in fits[i]}
    assert list(by_step) == list(steps)
    return list(by_step.values())


def name_losses(fits):
    return [[row | {"train/loss": i + row["train/loss"]} for row in rows] for i, rows in enumerate(fits)]


@CASES
@pytest.mark.parametrize("between", [None, *EVALUATIONS, "failed", "all"])
def test_what_lies_between_the_fits_changes_nothing(tmp_path, fits, mine, steps, between):
    """The same steps and losses as of the fits alone, with such a log before, between and behind them."""
    fits = name_losses(fits)
    kinds = {**EVALUATIONS, "failed": None}
    others = [] if between is None else list(kinds.values()) if between == "all" else [kinds[between]]
    logs = [*others, *(log for rows in fits for log in (rows, *others))]
    for number, rows in enumerate(logs):
        write_version(tmp_path, number, rows)
    run = read_run(tmp_path)
    assert run.steps.tolist() == list(steps)
    np.testing.assert_allclose(run.loss, loss_of(fits, mine, steps))
    assert not [name for name in run.values if name.startswith(("val/", "test/"))]
    assert not len(run.val_steps)
    numbers = [logs.index(fits[i]) for i in mine]
    folders = ", ".join(f"version_{number}" for number in numbers)
    joined = [f"joined {len(mine)} logs of one resumed run: {folders}"] if len(mine) > 1 else []
    assert [note for note in run.notes if note.startswith("joined")] == joined
    assert settings_of(run)["target"] == f"of-{numbers[-1]}"
    idle = sum(rows is not None and rows not in fits for rows in logs)
    assert bool(idle) == any(note.startswith("left out") for note in run.notes)


def test_the_logs_left_out_are_named(tmp_path):
    for number, rows in enumerate([VALIDATE, fit(5, 35), *[TEST] * 9]):
        write_version(tmp_path, number, rows)
    names = "version_0, version_2, version_3, version_4, version_5, version_6, ..."
    assert read_run(tmp_path).notes == [f"left out 10 logs without training: {names}"]


@pytest.mark.parametrize(
    ("ckpt_path", "later", "mine"),
    [
        ("last", fit(50, 100, every=50), [0, 1]),  # it logs so seldom that its first step tells nothing
        (None, fit(50, 100, every=50), [1]),
        ("last", fit(5, 20), [1]),  # nothing was stored, and the run began again
        (None, fit(25, 40), [0, 1]),  # a queue started it again
    ],
)
def test_a_config_that_names_a_checkpoint_says_resumed(tmp_path, ckpt_path, later, mine):
    write_version(tmp_path, 0, fit(5, 20))
    write_version(tmp_path, 1, later, ckpt_path=ckpt_path)
    expected = [row["train/step"] for rows in (fit(5, 20), later)[min(mine) :] for row in rows]
    assert read_run(tmp_path).steps.tolist() == expected


def test_a_resumed_fit_that_validates_first_drops_no_step(tmp_path):
    """Stopped at the end of an epoch: the validation belongs to a step that the log before holds."""
    write_version(tmp_path, 0, fit(5, 35))
    write_version(tmp_path, 1, [{"step": 19, "val/tau": 2.5}, *fit(25, 40)])
    run = read_run(tmp_path)
    assert run.steps.tolist() == list(range(5, 41, 5))
    assert (run.val_steps.tolist(), run.validation["val/tau"].tolist()) == ([20], [2.5])


def test_files_beside_another_runs_log_are_not_read(tmp_path):
    for number in (0, 1):
        write_version(tmp_path, number, fit(5, 35))
        write_lines(tmp_path / f"logs/version_{number}/skipped_steps.jsonl", [{"step": 10 + number}])
    assert [line["step"] for line in read_run(tmp_path).skipped] == [11]


def test_values_of_a_test_are_none_of_training(tmp_path):
    """One process may fit and test into one log."""
    run = read_run(write_csv(tmp_path / "metrics.csv", [*fit(5, 35), *TEST]))
    assert run.steps.tolist() == list(range(5, 36, 5))
    assert "test/loss" not in run.values


@pytest.mark.parametrize("newer", ["a", "b"])
def test_of_several_loggers_the_one_written_last_counts(tmp_path, newer):
    for name, rows in {"a": fit(5, 35), "b": fit(5, 20), "c": TEST}.items():
        path = write_csv(tmp_path / name / "version_0/metrics.csv", rows)
        age = {newer: 200, "c": 300}.get(name, 100)
        os.utime(path, (age, age))
    run = read_run(tmp_path)
    assert len(run.steps) == {"a": 7, "b": 4}[newer]
    assert f"2 other loggers' folders lie beside {newer} and are left out" in run.notes


class TestJsonLines:
    def test_the_only_one_with_training_is_read(self, tmp_path):
        write_lines(tmp_path / "train.jsonl", [{"step": 1, "loss": 1.0}])
        write_lines(tmp_path / "eval.jsonl", [{"step": 1, "eval_loss": 9.0}])
        run = read_run(tmp_path)
        assert run.loss.tolist() == [1.0]
        assert run.notes == ["left out 1 log without training: eval.jsonl"]

    def test_also_where_another_logger_holds_evaluations(self, tmp_path):
        write_version(tmp_path, 0, VALIDATE)
        write_lines(tmp_path / "train.jsonl", [{"step": 1, "loss": 1.0}])
        assert read_run(tmp_path).loss.tolist() == [1.0]


class TestNoTraining:
    def test_what_was_found_is_said(self, tmp_path):
        for number, rows in enumerate([VALIDATE, TEST, [], None]):
            write_version(tmp_path, number, rows)
        found = (
            r"none of the 3 logs in .* is one of a training: looked for train/loss, loss, .* beside train/"
            r"step, .*; found version_0 \(val/loss, val/tau\), version_1 \(test/loss, test/tau\), "
            r"version_2 \(no values\)\. Validate and test write logs of their own: name the folder of a run"
        )
        with pytest.raises(ValueError, match=found):
            read_run(tmp_path)

    @pytest.mark.parametrize(("rows", "name"), [(VALIDATE, "val/tau"), (TEST, "test/tau")])
    def test_of_one_log(self, tmp_path, rows, name):
        write_version(tmp_path, 6, rows)
        with pytest.raises(
            ValueError, match=rf"version_6.*holds no loss: .*{name}.*\. Validate and test write"
        ):
            read_run(tmp_path / "logs/version_6")

    def test_of_failed_starts_alone(self, tmp_path):
        write_version(tmp_path, 0, None)
        with pytest.raises(FileNotFoundError, match="no log found in"):
            read_run(tmp_path)
