import dataclasses
import zipfile

import pytest
import torch

from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.export.checkpoint import read_checkpoint
from tests.export.test_zlab import TOY


def as_fit_saves_it(drafter):
    fields = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(drafter.config).items()
    }
    return {
        "state_dict": {f"drafter.{name}": tensor for name, tensor in drafter.state_dict().items()},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(3)}}}],
        "dflash": {"version": 1, "drafter": fields, "target": "some/model"},
    }


def test_config_weights_and_target_come_back(tmp_path):
    drafter = DFlashDrafter(TOY)
    torch.save(as_fit_saves_it(drafter), tmp_path / "last.ckpt")
    trained = read_checkpoint(tmp_path / "last.ckpt")
    assert trained.config == TOY
    assert trained.target == "some/model"
    assert trained.state.keys() == drafter.state_dict().keys()
    assert all(torch.equal(trained.state[name], tensor) for name, tensor in drafter.state_dict().items())


class Payload:
    """What weights_only refuses to build."""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"state_dict": {"model.weight": torch.ones(1)}}, "holds no drafter of this project"),
        ({"state_dict": {}, "dflash": {"drafter": {}}}, "no `drafter.*` weights"),
        ([1, 2], "x.ckpt is no checkpoint of `fit`: it holds a list; give a .ckpt file that it wrote"),
        (
            {"x": Payload()},
            r"x.ckpt holds more than tensors and plain values \(tests.export.test_checkpoint.Payload\), "
            "which is never loaded: it is no checkpoint as `fit` writes it; give",
        ),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    torch.save(content, tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match=message):
        read_checkpoint(tmp_path / "x.ckpt")


OTHER = "is no checkpoint of `fit`; give a .ckpt file that it wrote, a folder or an address of those"
DAMAGED = "is damaged, cut short or another program's "


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", OTHER),
        (b"PK", OTHER),
        (b"not a checkpoint", OTHER),
        (b'{"messages": []}\n' * 99, OTHER),
        (b"\x80\x02}q\x00.", OTHER),  # a bare pickle
        (b"PK\x03\x04 cut off", DAMAGED),
        ("half", DAMAGED),
        ("zip", DAMAGED),
    ],
)
def test_what_is_no_whole_checkpoint_is_refused_without_torchs_advice(tmp_path, content, message):
    """Which is about files of other programs: other arguments of torch.save, or trusting the file."""
    path = tmp_path / "x.ckpt"
    if content == "zip":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("a.txt", "text")
    elif content == "half":
        torch.save(as_fit_saves_it(DFlashDrafter(TOY)), path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path} {message}") as caught:
        read_checkpoint(path)
    assert "the folder of an exported drafter" in str(caught.value)
    assert "torch.save" not in str(caught.value)
    assert "weights_only" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="last.ckpt is no file; give a checkpoint of a run"):
        read_checkpoint(tmp_path / "last.ckpt")


def without(name):
    def change(facts):
        del facts[name]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("target"), r"last.ckpt has no dflash.target: .*give a checkpoint as `python cli.py fit`"),
        (without("drafter"), "last.ckpt has no dflash.drafter: "),
        (lambda facts: facts.update(target=None), "has no dflash.target"),
        (
            lambda facts: facts["drafter"].update(gates=4, experts=2),
            "last.ckpt states drafter.experts, drafter.gates, which this version does not know: export it "
            "with the version that wrote it, or a later one",
        ),
        (
            lambda facts: facts["drafter"].pop("rope_theta"),
            "last.ckpt does not state drafter.rope_theta: export it with the version that wrote it",
        ),
        (lambda facts: facts["drafter"].update(block_size=1), "last.ckpt: block_size counts the anchor"),
    ],
)
def test_a_checkpoint_of_another_version_names_the_field(tmp_path, change, message):
    content = as_fit_saves_it(DFlashDrafter(TOY))
    change(content["dflash"])
    torch.save(content, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match=message):
        read_checkpoint(tmp_path / "last.ckpt")


def test_a_field_with_a_default_may_be_missing(tmp_path):
    """Earlier versions did not write it."""
    content = as_fit_saves_it(DFlashDrafter(TOY))
    del content["dflash"]["drafter"]["causal_in_block"]
    torch.save(content, tmp_path / "last.ckpt")
    assert read_checkpoint(tmp_path / "last.ckpt").config == TOY
