"""The figures of `evaluate` on the model card: copied as they are, of this very drafter only."""

import dataclasses
import json

import pytest
import torch

from dflash_lightning.decoding.acceptance import AcceptanceLength, acceptance_length
from dflash_lightning.drafter.model import DFlashDrafter
from dflash_lightning.evaluation.as_json import as_values
from dflash_lightning.evaluation.figures import Figures, Part
from dflash_lightning.evaluation.result import ChatFacts, Evaluation
from dflash_lightning.export.checkpoint import TrainedDrafter
from dflash_lightning.export.evaluated import acceptance_section
from dflash_lightning.export.facts import RunFacts
from dflash_lightning.export.formats import load_folder
from dflash_lightning.export.identity import identity
from dflash_lightning.export.speculators import export_speculators
from dflash_lightning.export.target import TargetFacts, target_facts
from dflash_lightning.export.zlab import export_zlab
from tests.export.test_zlab import TOY


def figures(name, tau):
    return Figures(
        name=name,
        prompts=2,
        acceptance=AcceptanceLength(prompts=2, rounds=10, tokens=20, pooled=tau, mean=tau, first32=tau),
        histogram=(1,),
        slots=(0.5,),
        new_tokens=20,
        seconds=1.0,
        speed_up=1.0,
        equal_texts=2,
        stages={},
    )


def part(category, *taus):
    methods = tuple(figures(name, tau) for name, tau in zip(("plain", "chain", "tree 8"), taus, strict=True))
    return Part(category=category, prompts=2, methods=methods, lookup=acceptance_length([]))


def drafter(seed=0, config=TOY, target="owner/model", digest=None):
    state = DFlashDrafter(config, seed=seed).state_dict()
    return TrainedDrafter(config, state, target, RunFacts(target_digest=digest))


def section(path, trained=None, target=None, dtype=torch.bfloat16):
    return acceptance_section(path, trained or drafter(), target=target, dtype=dtype)


def written(path, known=None, **changes):
    given = {
        "target": "owner/model",
        "drafters": {"": "drafters/mine"},
        "dtype": "float32",
        "device": "cpu",
        "block_size": 4,
        "max_new_tokens": 128,
        "batch_size": 4,
        "sampling": None,
        "chats": ChatFacts(template="7e", arguments={}, stop_ids=(1,)),
        "parts": (part("all", 1.0, 2.346, 2.9), part("code", 1.0, 3.0, 3.5)),
    }
    path.write_text(json.dumps(as_values(Evaluation(**given | changes), known)))
    return path


def test_every_set_and_way_to_decode_has_its_figure(tmp_path):
    assert section(written(tmp_path / "e.json")).splitlines() == [
        "Acceptance length tau, pooled: tokens committed per pass of the target `owner/model` in float32, "
        "greedy, at most 128 new tokens, blocks of 4.",
        "",
        "| prompts | number | chain | tree 8 | prompt lookup |",
        "|---|---|---|---|---|",
        "| all | 2 | 2.35 | 2.90 |  |",
        "| code | 2 | 3.00 | 3.50 |  |",
    ]


def test_figures_of_two_drafters_are_on_no_card(tmp_path):
    path = written(tmp_path / "e.json", drafters={"A": "a", "B": "b"})
    with pytest.raises(ValueError, match="compares 2 drafters; a card takes figures of one"):
        section(path)


@pytest.mark.parametrize("content", ["{", "[]", '{"all": {}}', '{"drafters": {"": "x"}, "all": 3}'])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "e.json").write_text(content)
    with pytest.raises(ValueError, match=r"e.json is not the JSON that `python cli.py evaluate` writes"):
        section(tmp_path / "e.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no evaluation .*e.json; write one with"):
        section(tmp_path / "e.json")


def exported(folder, trained, dtype=torch.bfloat16):
    return {"": str(export_zlab(trained.config, trained.state, folder, dtype=dtype))}


def evaluated(tmp_path, folders, target="owner/model", **changes):
    read = {label: load_folder(folder, depth=8) for label, folder in folders.items()}
    return written(tmp_path / "e.json", identity(read, target), target=target, **changes)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16, torch.float32, None])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_figures_of_this_drafter_are_taken_in_whatever_precision_it_was_evaluated(tmp_path, stored, dtype):
    assert section(evaluated(tmp_path, exported(tmp_path / "a", drafter(), stored)), dtype=dtype)


def test_neither_folder_nor_format_makes_another_drafter(tmp_path):
    trained, target = drafter(), TargetFacts("owner/model")
    folder = export_speculators(trained.config, trained.state, tmp_path / "b", target=target)
    assert section(evaluated(tmp_path, {"": str(folder)}))


def test_a_folder_of_mixed_precision_is_itself(tmp_path):
    mixed = {n: t if "norm" in n else t.bfloat16() for n, t in drafter().state.items()}
    trained = TrainedDrafter(TOY, mixed, "owner/model")
    assert section(evaluated(tmp_path, exported(tmp_path / "a", trained, None)), trained, dtype=None)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (drafter(seed=1), r"than this drafter \(other weights\): evaluate the exported folder"),
        (
            drafter(config=dataclasses.replace(TOY, mask_token_id=51)),
            r"\(mask_token_id: 51 there, 52 in this drafter\)",
        ),
        (
            drafter(config=dataclasses.replace(TOY, block_size=8, rope_theta=1e4)),
            r"\(block_size: 8 there, 4 in this drafter; rope_theta: 10000.0 there, 1000000.0 in this d",
        ),
    ],
)
def test_figures_of_another_drafter_are_on_no_card(tmp_path, other, message):
    path = evaluated(tmp_path, exported(tmp_path / "a", other))
    with pytest.raises(ValueError, match=message):
        section(path)


def test_one_weight_is_enough(tmp_path):
    other = drafter()
    other.state["layers.1.mlp.up_proj.weight"][3, 3] += 0.1
    with pytest.raises(ValueError, match="other weights"):
        section(evaluated(tmp_path, exported(tmp_path / "a", other)))


def test_targets_are_told_apart_by_digest_whatever_their_names(tmp_path, toy_target):
    digest, folders = target_facts(str(toy_target)).digest, exported(tmp_path / "a", drafter())
    path = evaluated(tmp_path, folders, str(toy_target))
    assert section(path, drafter(target="another/name", digest=digest))
    assert section(path, target=TargetFacts("another/name", digest=digest))
    with pytest.raises(ValueError, match=f"of digest {digest}, d0 for this drafter"):
        section(path, drafter(target=str(toy_target), digest="d0"))


def test_without_a_digest_the_names_count(tmp_path, monkeypatch):
    path = evaluated(tmp_path, exported(tmp_path / "a", drafter()))
    with pytest.raises(ValueError, match=r"\(target owner/model, other/model for this drafter\)"):
        section(path, drafter(target="other/model"))
    assert section(path, drafter(target="/on/another/machine"), TargetFacts("owner/model"))
    assert section(path, drafter(target=None))  # nothing to compare with
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    path = written(tmp_path / "e.json", target="model")
    assert section(path, drafter(target=str(tmp_path / "model")))


def test_an_evaluation_of_an_earlier_version_is_checked_for_what_it_says(tmp_path):
    values = json.loads(written(tmp_path / "e.json").read_text())
    del values["identity"]
    (tmp_path / "e.json").write_text(json.dumps(values))
    assert section(tmp_path / "e.json")
    (tmp_path / "e.json").write_text(json.dumps(values | {"block_size": 8}))
    with pytest.raises(ValueError, match=r"\(blocks of 8, 4 in this drafter\)"):
        section(tmp_path / "e.json")
    (tmp_path / "e.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match="target owner/model, other/model for this drafter"):
        section(tmp_path / "e.json", drafter(target="other/model"))


def test_weights_too_large_for_the_evaluated_precision_are_others(tmp_path):
    path = evaluated(tmp_path, exported(tmp_path / "a", drafter(), torch.float16))
    large = drafter()
    large.state["fc.weight"][0, 0] = 1e5
    with pytest.raises(ValueError, match="other weights"):
        section(path, large)


def test_fewer_slots_than_the_drafter_has_are_no_other_drafter(tmp_path):
    path = evaluated(tmp_path, exported(tmp_path / "a", drafter()), block_size=2)
    assert "blocks of 2." in section(path)
