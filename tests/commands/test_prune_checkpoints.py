"""`checkpoints prune`: nothing goes without --yes, never the newest, and no pointer stays to what is gone."""

import json
import re
import time

import pytest

from dflash_lightning.checkpoint.claiming.claim import claim
from dflash_lightning.checkpoint.stores.local import LocalStore
from tests.checkpoint.saving import keep, save
from tests.commands.kept_checkpoints import data_of, lines, run, steps
from tests.commands.kept_checkpoints import folder as folder
from tests.commands.kept_checkpoints import two_runs as two_runs


@pytest.mark.parametrize("words", [(), ("--yes", "--dry-run")])
def test_prune_only_says_what_would_go(folder, words, capsys):
    assert run("prune", folder, *words) == 0
    out = lines(capsys)
    assert re.fullmatch(r"would delete step=8-\w{8}, 3.00 kB", out[0])
    assert out[1].startswith("1 of 3 complete checkpoints would go, 3.00 kB")
    assert out[1].endswith("; --yes deletes them") == (not words)
    assert steps(folder) == [4, 8, 12]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ((), [4, 12]),
        (("--keep-best", "0"), [12]),
        (("--keep-best", "0", "--keep-last", "0"), [12]),  # the newest never goes
        (("--keep-last", "2"), [4, 8, 12]),
        (("--keep-last", "-1"), [4, 8, 12]),
        (("--monitor", "val/loss", "--mode", "max"), [12]),
    ],
)
def test_prune_deletes_with_yes(folder, words, left, capsys):
    assert run("prune", folder, "--yes", *words) == 0
    assert steps(folder) == left
    assert len(list((folder / "data").iterdir())) == len(left)
    assert not (folder / "owner.json").exists()


UNKNOWN = "no checkpoint holds {}; they hold val/loss, val/nan, lr$"


@pytest.mark.parametrize("words", [(), ("--yes",), ("--yes", "--keep-best", "0")])
@pytest.mark.parametrize(
    ("monitor", "said"),
    [
        ("val/typo", UNKNOWN.format("val/typo")),
        ("val/los", UNKNOWN.format("val/los")),
        ("", UNKNOWN.format("")),
        ("val/nan", "no checkpoint has a finite value of val/nan, so none is best; give another metric$"),
        ("lr", "no checkpoint was saved by lr, so nothing says .*: add --mode min or --mode max$"),
    ],
)
def test_prune_by_a_metric_that_decides_nothing_deletes_nothing(monitor, said, words, tmp_path, capsys):
    store = LocalStore(tmp_path)
    for step in (4, 8, 12):
        metrics = {"lr": 1e-3, "val/nan": float("nan"), "val/loss": 1.0 / step}
        save(store, step, prefix="", retention=keep(monitor="val/loss"), metrics=metrics)
    before = sorted(path for path in tmp_path.rglob("*"))
    assert run("prune", tmp_path, "--keep-last", "1", "--monitor", monitor, *words) == 1
    assert re.search(said, capsys.readouterr().err, re.M)
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_many_metrics_are_not_all_named(tmp_path, capsys):
    save(LocalStore(tmp_path), 4, prefix="", metrics={f"val/acc_{slot}": 0.5 for slot in range(15)})
    assert run("prune", tmp_path, "--monitor", "val/typo") == 1
    assert "no checkpoint holds val/typo; they hold val/acc_0, val/acc_1" in (err := capsys.readouterr().err)
    assert "val/acc_7 and 7 more\n" in err
    save(LocalStore(tmp_path / "none"), 4, prefix="")
    assert run("prune", tmp_path / "none", "--monitor", "val/typo") == 1
    assert "no checkpoint holds val/typo; they hold no metric" in capsys.readouterr().err


def test_prune_takes_the_mode_of_the_checkpoints_that_were_saved_by_the_metric(tmp_path):
    """The newest was saved by another, of which more is better."""
    for step, monitor, mode in [(4, "val/loss", "min"), (8, "val/loss", "min"), (12, "val/tau", "max")]:
        metrics = {"val/loss": step / 4, "val/tau": 1.0}
        rules = keep(monitor=monitor, mode=mode)
        save(LocalStore(tmp_path), step, prefix="", retention=rules, metrics=metrics)
    assert run("prune", tmp_path, "--yes", "--monitor", "val/loss") == 0
    assert steps(tmp_path) == [4, 12]


def pointed(folder, which):
    path = folder / f"{which}.json"
    return json.loads(path.read_text())["step"] if path.exists() else None


@pytest.mark.parametrize(
    ("words", "last", "best"),
    [
        ((), 12, 4),
        (("--keep-best", "0"), 12, 12),
        (("--keep-last", "2", "--keep-best", "0"), 12, 12),  # 8 has no finite value
        (("--mode", "max"), 12, 12),
    ],
)
def test_prune_leaves_no_pointer_to_what_is_gone(folder, words, last, best):
    assert run("prune", folder, "--yes", *words) == 0
    assert (pointed(folder, "last"), pointed(folder, "best")) == (last, best)
    assert {last, best} <= set(steps(folder))


def test_prune_removes_a_best_json_that_leads_nowhere(folder):
    data_of(folder, 12).unlink()
    for words in [("--keep-best", "0"), ("--keep-best", "1")]:
        assert run("prune", folder, "--yes", *words) == 0
        assert (pointed(folder, "last"), pointed(folder, "best")) == (8, None)


def test_prune_keeps_the_best_of_all_runs_and_that_of_the_newest(two_runs):
    assert run("prune", two_runs, "--yes") == 0
    assert steps(two_runs) == [4, 6, 54]
    assert (pointed(two_runs, "last"), pointed(two_runs, "best")) == (6, 4)


def test_prune_keeps_the_newest_that_is_complete_and_what_is_not(folder):
    data_of(folder, 12).unlink()
    assert run("prune", folder, "--yes", "--keep-best", "0") == 0
    assert steps(folder) == [8, 12]


def test_prune_leaves_a_run_that_is_writing_alone(folder, capsys):
    claim(LocalStore(folder), "", "live", now=time.time(), stale_after_s=300.0)
    assert run("prune", folder, "--yes") == 1
    assert "says that run live" in capsys.readouterr().err
    assert steps(folder) == [4, 8, 12]
