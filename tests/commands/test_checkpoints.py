"""`checkpoints`: what lies there is told as it is, and fetched."""

import json
import re

import pytest
import yaml

from dflash_lightning.checkpoint.stores import open_store
from dflash_lightning.checkpoint.stores.local import LocalStore
from dflash_lightning.checkpoint.stores.memory import MemoryStore, name_store
from dflash_lightning.commands.checkpoint_table import age
from tests.checkpoint.saving import content, keep, save
from tests.commands.kept_checkpoints import data_of, lines, run
from tests.commands.kept_checkpoints import folder as folder
from tests.commands.kept_checkpoints import two_runs as two_runs


def test_a_line_for_each_newest_first_with_columns_under_each_other(folder, capsys):
    assert run("list", folder) == 0
    header, *rows, total = lines(capsys)
    assert header.split() == ["checkpoint", "state", "kind", "pointers", "age", "size", "val/loss"]
    assert [re.sub(r"-\w{8}|\d+ s", "", row).split() for row in rows] == [
        ["step=12", "complete", "step", "last", "3.00", "kB", "2"],
        ["step=8", "complete", "step", "3.00", "kB", "nan"],
        ["step=4", "complete", "step", "best", "3.00", "kB", "1.25"],
    ]
    assert len({len(row) for row in (header, *rows)}) == 1
    assert total == "3 checkpoints, 3 complete, 9.00 kB"


def test_a_list_of_several_runs_shows_which_is_whose(two_runs, capsys):
    assert run("list", two_runs) == 0
    header, *rows, note, _ = lines(capsys)
    assert header.split()[:3] == ["checkpoint", "run", "state"]
    assert [re.sub(r"-\w{8}|\d+ s", "", row).split()[:5] for row in rows] == [
        ["step=6", "second", "complete", "step", "last"],
        ["step=4", "second", "complete", "step", "best"],
        ["step=2", "second", "complete", "step", "3.00"],
        ["step=54", "first", "complete", "step", "3.00"],
        ["step=27", "first", "complete", "step", "3.00"],
    ]
    assert note == "2 runs lie here; last and best are those of the newest, second"


def test_the_table_shows_what_was_validated_and_fits_a_terminal(tmp_path, capsys):
    values = {f"val/acc_{slot}": 0.5 for slot in range(15)} | {"val/tau": 1.5, "train/loss": 3.25}
    rules = {"retention": keep(monitor="val/tau"), "metrics": values}
    save(LocalStore(tmp_path), 12_345_678, prefix="", **rules)
    assert run("list", tmp_path) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    header = text.splitlines()[0].split()
    assert header[6:8] == ["val/tau", "val/acc_0"]  # the monitored one first
    assert "train/loss" not in header
    assert run("list", tmp_path, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["checkpoints"][0]["metrics"] == values


@pytest.mark.parametrize("place", ["{root}/checkpoints", "s3://bucket/runs/a"])
def test_a_runs_folder_leads_to_its_store(place, tmp_path, capsys):
    """By what lies below it, and by what the config in its logs says."""
    place = place.format(root=tmp_path)
    if "://" not in place:
        save(LocalStore(tmp_path / "checkpoints"), 4, prefix="", retention=keep())
    log = tmp_path / "logs" / "version_0"
    log.mkdir(parents=True)
    entry = {"class_path": "dflash_lightning.callbacks.s3_checkpoint.S3Checkpoint"}
    (log / "config.yaml").write_text(
        yaml.safe_dump({"trainer": {"callbacks": [entry | {"init_args": {"uri": place}}]}})
    )
    (log / "config-2.yaml").write_text("trainer: {callbacks: null}")
    assert run("list", tmp_path) == 0
    assert lines(capsys) == [f"no checkpoint lies at {tmp_path}; checkpoints lie in {place}"]


def test_states(folder, capsys):
    data_of(folder, 12).unlink()
    data_of(folder, 8).write_bytes(b"short")
    (folder / "data" / "step=14-0000000a.ckpt").write_bytes(b"half")
    (folder / "manifests" / "step=000000000016-0000000b.json").write_bytes(b"{")
    (folder / "data" / ".step=18-0000000c.ckpt.12345678.pending").write_bytes(b"on its way")
    assert run("list", folder) == 0
    text = capsys.readouterr().out
    states = dict(re.findall(r"^(step=\d+)-\w+ +(complete|incomplete|corrupt)", text, re.M))
    assert states == {
        "step=12": "incomplete",
        "step=8": "corrupt",
        "step=4": "complete",
        "step=16": "corrupt",
        "step=14": "incomplete",
    }
    for reason in (
        r"step=12-\w+ is incomplete: its data .* is missing",
        r"step=8-\w+ is corrupt: .* has 5 bytes, its manifest says 3,000",
        r"step=14-0000000a is incomplete: data without a manifest: being written, or left by a kill",
        r"step=16-0000000b is corrupt: its manifest: it is no JSON, or was cut",
        r"upload not finished: .*step=18-0000000c.ckpt",
        "5 checkpoints, 1 complete",
    ):
        assert re.search(reason, text)


def test_verify_reads_every_byte(folder, capsys):
    assert run("verify", folder) == 0
    data_of(folder, 8).write_bytes(content(8)[:-1] + b"?")
    assert run("list", folder) == 0  # a folder keeps no checksums
    assert run("verify", folder) == 1
    assert re.search(r"step=8-\w+ is corrupt: .* differs from its manifest", capsys.readouterr().out)


def test_json_is_for_programs(folder, capsys):
    assert run("list", folder, "--format", "json") == 0
    values = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    newest, middle, oldest = values["checkpoints"]
    assert (newest["step"], newest["state"], newest["bytes"]) == (12, "complete", 3000)
    assert newest["pointers"] == ["last"]
    assert middle["metrics"] == {"val/loss": None, "lr": 0.001}
    assert oldest["files"][0]["key"].startswith("data/step=4-")
    assert values["pending_uploads"] == []


def test_nothing_there(tmp_path, capsys):
    assert run("list", tmp_path) == 0
    assert run("verify", tmp_path) == 1
    assert lines(capsys) == [f"no checkpoint lies at {tmp_path}"] * 2
    assert run("list", tmp_path / "gone") == 1
    assert f"checkpoints: there is no folder {tmp_path}/gone" in capsys.readouterr().err


def test_fetch_prints_the_path(folder, tmp_path, capsys):
    data_of(folder, 12).unlink()
    assert run("fetch", folder, "--output", tmp_path / "here") == 0
    said = capsys.readouterr()
    assert re.fullmatch(rf"{tmp_path}/here/step=8-\w+\.ckpt\n", said.out)
    assert re.search(r"skipping .*step=000000000012-\w+.json: its data .* is missing", said.err)
    assert run("fetch", f"{folder}/best", "--output", tmp_path / "here") == 0
    assert "step=4-" in capsys.readouterr().out


def test_an_error_of_the_store_is_one_message_without_a_traceback(tmp_path, capsys):
    name_store("empty", MemoryStore("empty"))
    assert run("fetch", "memory://empty/runs/a", "--output", tmp_path) == 1
    err = capsys.readouterr().err
    assert "checkpoints: there is no checkpoint memory://empty/runs/a/last: nothing lies there" in err
    assert "Traceback" not in err


def test_flags_reach_the_store(capsys):
    assert run("list", "s3://bucket/runs/a", "--endpoint-url", "ftp://host") == 1
    assert "endpoint_url must look like https://host" in capsys.readouterr().err


def test_on_a_real_server(weed, s3_uri, s3_settings, tmp_path, capsys):
    store, prefix = open_store(s3_uri, s3_settings)
    for step in (4, 8):
        save(store, step, prefix=prefix, retention=keep())
    server = ("--endpoint-url", weed.endpoint, "--path-style")
    assert run("verify", s3_uri, *server) == 0
    assert run("prune", s3_uri, "--yes", *server) == 0
    assert "1 of 2 complete checkpoints deleted" in capsys.readouterr().out
    assert run("fetch", s3_uri, "--output", tmp_path, *server) == 0
    assert next(tmp_path.glob("step=8-*.ckpt")).read_bytes() == content(8)


@pytest.mark.parametrize("action", ["list", "verify", "prune", "fetch"])
def test_each_action_explains_itself(action, capsys):
    with pytest.raises(SystemExit) as leaving:
        run(action, "--help")
    assert leaving.value.code == 0
    text = capsys.readouterr().out
    assert "--endpoint-url" in text
    assert "URI" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5.0, "0 s"), (59.9, "59 s"), (60.0, "1 min"), (7200.0, "2 h"), (200_000.0, "2 d")],
)
def test_ages(seconds, text):
    assert age(seconds) == text
