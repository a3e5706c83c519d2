"""A later list of callbacks replaces the earlier one, whatever their lengths and classes."""

from pathlib import Path

import pytest
import yaml

from dflash_lightning.lightning_cli import read_config
from dflash_lightning.replacing_lists import EMPTY, with_fresh_lists

TINY = Path(__file__).parents[1] / "configs" / "tiny.yaml"


@pytest.fixture
def files(tmp_path):
    def write(name, content):
        (tmp_path / name).write_text(yaml.safe_dump(content))
        return str(tmp_path / name)

    return {
        "replaces": write("replaces.yaml", {"trainer": {"callbacks": []}}),
        "adds": write("adds.yaml", {"trainer": {"callbacks+": []}}),
        "other": write("other.yaml", {"model": {"lr": 1.0}}),
        "list": write("list.yaml", [1, 2]),
        "missing": str(tmp_path / "missing.yaml"),
    }


@pytest.mark.parametrize(
    ("words", "renewed"),
    [
        (["fit", "--config={replaces}"], ["fit", EMPTY, "--config={replaces}"]),
        (["--config", "{replaces}", "--x=1"], [EMPTY, "--config", "{replaces}", "--x=1"]),
        (["-c", "{adds}", "-c", "{replaces}"], ["-c", "{adds}", EMPTY, "-c", "{replaces}"]),
        (["--trainer.callbacks=[A]"], [EMPTY, "--trainer.callbacks=[A]"]),
        (["--trainer.callbacks", "[A]"], [EMPTY, "--trainer.callbacks", "[A]"]),
    ],
)
def test_a_new_list_begins_empty(words, renewed, files):
    assert with_fresh_lists([w.format(**files) for w in words]) == [w.format(**files) for w in renewed]


@pytest.mark.parametrize(
    "words",
    [
        ["--config={adds}"],
        ["--config={other}", "--trainer.callbacks+=A"],
        ["--config={missing}", "--config={list}", "--config"],
        ["--trainer.callbacks.help", "GradNorm"],
        [],
    ],
)
def test_all_else_stays_as_it_is(words, files):
    given = [word.format(**files) for word in words]
    assert with_fresh_lists(given) == given


@pytest.mark.parametrize("dropped", [0, 1])
@pytest.mark.parametrize("inline", [False, True])
def test_entries_of_the_same_class_keep_nothing_of_the_earlier_list(dropped, inline, tmp_path):
    """Lists of equal length are what the parser would lay over each other."""
    kinds = [entry["class_path"] for entry in yaml.safe_load(TINY.read_text())["trainer"]["callbacks"]]
    needed = {"S3Checkpoint": {"init_args": {"uri": "elsewhere"}}}
    bare = [{"class_path": kind, **needed.get(kind, {})} for kind in kinds[dropped:]]
    later = tmp_path / "later.yaml"
    later.write_text(yaml.safe_dump({"trainer": {"callbacks": bare}}))
    word = f"--trainer.callbacks={bare}" if inline else f"--config={later}"
    after = read_config([f"--config={TINY}", word])["trainer"]["callbacks"]
    settings = {entry["class_path"].rsplit(".", 1)[-1]: entry.get("init_args", {}) for entry in after}
    assert len(after) == len(bare)
    assert settings["S3Checkpoint"]["every_n_steps"] == 500
    assert settings["S3Checkpoint"]["monitor"] is None
