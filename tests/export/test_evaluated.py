"""The figures of `evaluate` on the model card: copied as they are, of one drafter only."""

import json

import pytest

from dflash_lightning.decoding.acceptance import AcceptanceLength, acceptance_length
from dflash_lightning.evaluation.as_json import as_values
from dflash_lightning.evaluation.figures import Figures, Part
from dflash_lightning.evaluation.result import Evaluation
from dflash_lightning.export.evaluated import acceptance_section


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


def written(path, **changes):
    given = {
        "target": "owner/model",
        "drafters": {"": "drafters/mine"},
        "dtype": "float32",
        "device": "cpu",
        "block_size": 8,
        "max_new_tokens": 128,
        "batch_size": 4,
        "sampling": None,
        "parts": (part("all", 1.0, 2.346, 2.9), part("code", 1.0, 3.0, 3.5)),
    }
    path.write_text(json.dumps(as_values(Evaluation(**given | changes))))
    return path


def test_every_set_and_way_to_decode_has_its_figure(tmp_path):
    assert acceptance_section(written(tmp_path / "e.json")).splitlines() == [
        "Acceptance length tau, pooled: tokens committed per pass of the target `owner/model` in float32, "
        "greedy, at most 128 new tokens, blocks of 8.",
        "",
        "| prompts | number | chain | tree 8 | prompt lookup |",
        "|---|---|---|---|---|",
        "| all | 2 | 2.35 | 2.90 |  |",
        "| code | 2 | 3.00 | 3.50 |  |",
    ]


def test_figures_of_two_drafters_are_on_no_card(tmp_path):
    path = written(tmp_path / "e.json", drafters={"A": "a", "B": "b"})
    with pytest.raises(ValueError, match="compares 2 drafters; a card takes figures of one"):
        acceptance_section(path)


@pytest.mark.parametrize("content", ["{", "[]", '{"all": {}}', '{"drafters": {"": "x"}, "all": 3}'])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "e.json").write_text(content)
    with pytest.raises(ValueError, match=r"e.json is not the JSON that `python cli.py evaluate` writes"):
        acceptance_section(tmp_path / "e.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no evaluation .*e.json; write one with"):
        acceptance_section(tmp_path / "e.json")
